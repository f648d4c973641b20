"""MPIJob of training-operator (v1)."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.cluster.jobs import mpi_job_v1, replica
from tests.cluster.v1 import not_run
from tests.cluster.world import Job, Pod, World, eventually
from tests.control_plane.api import MERGE, Manifest

pytestmark = not_run

LABEL = "training.kubeflow.org"
RBAC = "rbac.authorization.k8s.io/v1"
NOWHERE = {"nodeSelector": {"no": "such-node"}}

MPIRUN = """
import os, subprocess, sys
agent = os.environ["OMPI_MCA_plm_rsh_agent"]
hosts = [line.split()[0] for line in open(os.environ["OMPI_MCA_orte_default_hostfile"])]
ranks = [subprocess.Popen([agent, host, *sys.argv[1:]], stdout=subprocess.PIPE) for host in hosts]
for rank in ranks:
    sys.stdout.write(rank.communicate()[0].decode())
sys.exit(max(rank.returncode for rank in ranks))
"""


def mpi(
    launcher: str | Manifest = "true", worker: str | Manifest = "sleep 60", **spec: Any
) -> Manifest:
    """Scripts or whole roles."""
    roles = {
        "Launcher": launcher if isinstance(launcher, dict) else replica("mpi", launcher),
        "Worker": worker if isinstance(worker, dict) else replica("mpi", worker),
    }
    return mpi_job_v1(roles, **spec)


def config(world: World) -> dict[str, str]:
    return dict(eventually(lambda: world.find("ConfigMap", "job-config"))["data"])


def settled(job: Job, *names: str) -> None:
    eventually(lambda: job.pod_names() == list(names), job.pod_names)


# ---- success


def test_success_of_launcher_and_workers(world: World) -> None:
    job = world.submit(mpi("sleep 2", replica("mpi", "sleep 60", 2)))
    running = job.becomes("Running")
    assert (running["reason"], running["message"]) == ("MPIJobRunning", "MPIJob job is running.")
    end = job.succeeds()
    assert end["reason"] == "MPIJobSucceeded"
    assert end["message"] == "MPIJob job is successfully completed."
    running = job.conditions()["Running"]
    assert (running["status"], running["reason"]) == ("False", "MPIJobRunning")
    job.counts(Launcher={"succeeded": 1}, Worker={})
    assert job.status["startTime"] <= job.status["completionTime"]
    settled(job, "job-launcher", "job-worker-0", "job-worker-1")
    assert Pod(world, "job-worker-0").status["phase"] == "Running"


def test_the_launcher_finds_hostfile_and_scripts(world: World) -> None:
    script = (
        "test $(grep -c slots=1 $OMPI_MCA_orte_default_hostfile) = 2 &&"
        " cmp /etc/mpi/hostfile $OMPI_MCA_orte_default_hostfile &&"
        " test -x /etc/mpi/kubexec.sh && test -x /etc/mpi/discover_hosts.sh"
    )
    job = world.submit(mpi(script, replica("mpi", "sleep 60", 2)))
    job.succeeds()


def test_the_launcher_starts_ranks_in_the_pods_of_workers(world: World) -> None:
    launcher = replica("mpi", None)
    main = launcher["template"]["spec"]["containers"][0]
    main["command"] = ["python", "-c", MPIRUN, "echo", "$WHO", "$HOSTNAME"]
    worker = replica("mpi", None, 2, env=[{"name": "WHO", "value": "worker"}])
    job = world.submit(mpi(launcher, worker))
    job.succeeds()
    lines = Pod(world, "job-launcher").log().text.splitlines()
    assert lines == ["worker job-worker-0", "worker job-worker-1"]


def test_a_fast_launcher_succeeds_although_no_worker_ever_ran(world: World) -> None:
    job = world.submit(mpi("true", replica("mpi", pod=NOWHERE)))
    job.succeeds()
    assert Pod(world, "job-worker-0").status["phase"] == "Pending"


def test_a_job_without_workers_is_a_job(world: World) -> None:
    job = world.submit(mpi("test ! -s /etc/mpi/hostfile", replica("mpi", count=0)))
    job.succeeds()
    settled(job, "job-launcher")


def test_events_of_a_healthy_job_tell_of_a_failure_that_was_none(world: World) -> None:
    """The operator reads a cache that lags behind, and creates the launcher twice. It writes so
    many events that the rest is lost: of more than 25 events about one object some are dropped,
    often that of the success."""
    job = world.submit(mpi("sleep 30"))
    job.becomes("Running")
    world.told("MPIJobRunning")
    told = {(event.type, event.reason, event.message) for event in world.events()}
    assert told >= {
        ("Normal", "SuccessfulCreatePod", "Created worker pod: job-worker-0"),
        # A reason with a space, and MPIJobRunning before anything runs.
        ("Normal", "ServiceAccount is exist", "ServiceAccount: job-launcher"),
        ("Normal", "MPIJobRunning", "launcher pod created success: job-launcher"),
    }
    warnings = {event for event in told if event[0] == "Warning" and event[1].startswith("MPIJob")}
    wanted = 'launcher pod created failed: pods "job-launcher" already exists'
    assert warnings <= {("Warning", "MPIJobFailed", wanted)}


# ---- failure


def test_a_launcher_that_fails_fails_the_job(world: World) -> None:
    job = world.submit(mpi("exit 3"))
    end = job.fails()
    # Written by one of two code paths of the operator.
    assert end["reason"] in ("MPIJobMPIJobFailed", "MPIJobFailed")
    assert end["message"] == "MPIJob job is failed because 1 Launcher replica(s) failed."
    assert job.status["completionTime"]
    job.counts(Launcher={"failed": 1})
    status = Pod(world, "job-launcher").status
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3


def test_a_worker_that_fails_fails_the_job(world: World) -> None:
    """Unlike with mpi-operator."""
    job = world.submit(mpi("sleep 60", "exit 1"))
    end = job.fails()
    assert end["message"] == "MPIJob job is failed because 1 Worker replica(s) failed."
    job.counts(Worker={"failed": 1})
    assert Pod(world, "job-launcher").status["phase"] == "Running"


def test_a_worker_that_fails_under_exit_code_is_not_restarted_and_does_no_harm(
    world: World,
) -> None:
    """Whether Restarting or Running is set meanwhile, and stays next to Succeeded, is random: the
    operator handles the roles in no order."""
    worker = replica("mpi", "exit 137", policy="ExitCode")
    job = world.submit(mpi("sleep 3", worker))
    worker_pod = job.pod("job-worker-0")
    worker_pod.phase("Failed")
    uid = worker_pod.now()["metadata"]["uid"]
    job.succeeds()
    assert worker_pod.now()["metadata"]["uid"] == uid


@pytest.mark.parametrize("code", [3, 137])
def test_a_launcher_that_fails_under_exit_code_is_restarting_for_ever(
    world: World, code: int
) -> None:
    """It is not replaced, and the job never fails. This is watched for three seconds, in which the
    operator handles the job again: there is no event to wait for."""
    job = world.submit(mpi(replica("mpi", f"exit {code}", policy="ExitCode")))
    wanted = "MPIJob job is restarting because 1 Launcher replica(s) failed."
    assert job.becomes("Restarting")["message"] == wanted
    job.patch({"metadata": {"labels": {"look": "again"}}})
    time.sleep(3)
    ended = Pod(world, "job-launcher").status["containerStatuses"][0]["state"]["terminated"]
    assert ended["exitCode"] == code
    job.counts(Launcher={"failed": 1})
    assert job.is_true("Restarting")
    assert "Failed" not in job.conditions()
    assert "completionTime" not in job.status


@pytest.mark.parametrize("role", ["launcher", "worker"])
def test_the_backoff_limit_counts_restarts_in_place(world: World, role: str) -> None:
    crash = replica("mpi", "exit 3", policy="OnFailure")
    manifest = mpi(crash) if role == "launcher" else mpi("sleep 60", crash)
    manifest["spec"]["runPolicy"]["backoffLimit"] = 1
    job = world.submit(manifest)
    end = job.fails()
    assert end["reason"] == "MPIJobFailed"
    wanted = "Job job has failed because it has reached the specified backoff limit"
    assert end["message"] == wanted
    pod = Pod(world, "job-launcher" if role == "launcher" else "job-worker-0")
    assert pod.status["containerStatuses"][0]["restartCount"] >= 1


def test_the_backoff_limit_means_nothing_where_nothing_restarts(world: World) -> None:
    job = world.submit(mpi("exit 3", run_policy={"backoffLimit": 5}))
    assert "1 Launcher replica(s) failed" in job.fails()["message"]


def test_a_negative_backoff_limit_fails_the_job_before_anything_is_made(world: World) -> None:
    job = world.submit(mpi("true", run_policy={"backoffLimit": -1}))
    assert "reached the specified backoff limit" in job.fails()["message"]
    assert job.pods() == []


def test_the_deadline_is_looked_at_only_when_something_happens(world: World) -> None:
    """Watched for three seconds more, since there is no event to wait for."""
    deadline = 10  # time enough to run before
    job = world.submit(mpi("sleep 60", run_policy={"activeDeadlineSeconds": deadline}))
    job.becomes("Running")
    time.sleep(deadline + 3)
    assert not job.is_true("Failed")
    job.patch({"metadata": {"labels": {"look": "again"}}})
    end = job.fails()
    assert end["reason"] == "MPIJobFailed"
    assert (
        end["message"] == "Job job has failed because it was active longer than specified deadline"
    )


def test_an_evicted_worker_fails_the_job_for_good(world: World) -> None:
    """Unlike with mpi-operator."""
    job = world.submit(mpi("sleep 60", replica("mpi", pod=NOWHERE)))
    pod = job.pod("job-worker-0")
    evicted = {"status": {"phase": "Failed", "reason": "Evicted"}}
    world.api.call("PATCH", f"{pod.path}/status", evicted, content_type=MERGE).required("it")
    end = job.fails()
    assert end["message"] == "MPIJob job is failed because 1 Worker replica(s) failed."


def test_a_worker_that_finds_no_node_does_not_keep_the_job_from_running(world: World) -> None:
    """Running is true with the launcher alone, unlike with mpi-operator."""
    job = world.submit(mpi("sleep 60", replica("mpi", pod=NOWHERE)))
    job.becomes("Running")
    job.counts(Launcher={"active": 1}, Worker={})
    event = world.told("Unschedulable", "MPIJob/job")
    assert event.type == "Warning"
    assert event.message.startswith("Error pod job-worker-0 condition message: 0/1 nodes are")


def test_a_worker_without_an_image_is_told_of_at_the_job(world: World) -> None:
    job = world.submit(mpi("sleep 60", replica("mpi", image="missing/image")))
    job.becomes("Running")
    event = world.told("ImagePullBackOff", "MPIJob/job")
    assert event.message.startswith("Error pod job-worker-0 container mpi waiting message: ")


# ---- clean-up


@pytest.mark.parametrize("end", ["success", "failure"])
@pytest.mark.parametrize(
    ("policy", "left"),
    [
        pytest.param("None", ["job-launcher", "job-worker-0"], id="None"),
        pytest.param("Running", ["job-launcher"], id="Running"),
        pytest.param("All", [], id="All"),
        # Nobody checks it.
        pytest.param("Sometimes", [], id="unknown"),
    ],
)
def test_what_is_left_of_the_pods(world: World, policy: str, left: list[str], end: str) -> None:
    launcher = "sleep 1; exit 0" if end == "success" else "sleep 1; exit 3"
    job = world.submit(mpi(launcher, run_policy={"cleanPodPolicy": policy}))
    job.succeeds() if end == "success" else job.fails()
    settled(job, *left)


@pytest.mark.parametrize(
    ("run_policy", "left"),
    [
        pytest.param({}, [], id="alone"),
        pytest.param({"cleanPodPolicy": "None"}, ["job-launcher", "job-worker-0"], id="beside"),
    ],
)
def test_a_clean_pod_policy_beside_the_run_policy_counts_if_it_is_alone(
    world: World, run_policy: Manifest, left: list[str]
) -> None:
    job = world.submit(mpi("sleep 1", cleanPodPolicy="All", run_policy=run_policy))
    job.succeeds()
    settled(job, *left)


def test_a_launcher_that_crash_loops_is_gone_after_the_failure(world: World) -> None:
    policy = {"backoffLimit": 1, "cleanPodPolicy": "Running"}
    job = world.submit(mpi(replica("mpi", "exit 3", policy="OnFailure"), run_policy=policy))
    first = job.pod("job-launcher").now()["metadata"]["uid"]
    job.fails()
    eventually(lambda: first not in [pod["metadata"]["uid"] for pod in job.pods()], job.pods)


def test_a_time_to_live_removes_the_job_and_all_of_it(world: World) -> None:
    job = world.submit(mpi("sleep 1", run_policy={"ttlSecondsAfterFinished": 1}))
    job.succeeds()
    eventually(lambda: job.is_gone() and not job.pod_names(), job.pod_names)
    assert not world.find("ConfigMap", "job-config")


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
def test_deletion_takes_everything_along(world: World, policy: str) -> None:
    job = world.submit(mpi("sleep 60"))
    job.becomes("Running")
    assert job.delete(propagationPolicy=policy).code == 200
    eventually(lambda: job.is_gone() and not job.pod_names(), job.pod_names)
    eventually(lambda: not any(world.find(*found) for found in _OBJECTS))


# ---- suspension


def test_a_job_that_is_suspended_from_the_start_has_no_pods_until_it_is_resumed(
    world: World,
) -> None:
    job = world.submit(mpi("sleep 1", run_policy={"suspend": True}))
    suspended = job.becomes("Suspended")
    assert suspended["reason"] == "MPIJobSuspended"
    assert suspended["message"] == "MPIJob job is suspended."
    assert job.pods() == []
    assert not world.find("ConfigMap", "job-config")
    job.patch({"spec": {"runPolicy": {"suspend": False}}})
    job.succeeds()
    resumed = job.conditions()["Suspended"]
    assert (resumed["status"], resumed["reason"]) == ("False", "MPIJobResumed")
    assert resumed["message"] == "MPIJob job is resumed."


def test_a_job_that_is_suspended_while_it_runs_loses_its_pods_and_starts_anew(
    world: World,
) -> None:
    job = world.submit(mpi("sleep 2"))
    job.becomes("Running")
    first = Pod(world, "job-launcher").now()["metadata"]["uid"]
    job.patch({"spec": {"runPolicy": {"suspend": True}}})
    job.becomes("Suspended")
    settled(job)
    running = job.conditions()["Running"]
    assert (running["status"], running["reason"]) == ("False", "MPIJobSuspended")
    job.patch({"spec": {"runPolicy": {"suspend": False}}})
    again = job.pod("job-launcher").now()
    assert again["metadata"]["uid"] != first
    job.succeeds()


# ---- the objects


_OBJECTS = (
    ("ConfigMap", "job-config"),
    ("ServiceAccount", "job-launcher"),
    ("Role", "job-launcher", RBAC),
    ("RoleBinding", "job-launcher", RBAC),
)


def test_objects_of_a_job_and_their_owner(world: World) -> None:
    job = world.submit(mpi("sleep 30", replica("mpi", "sleep 60", 2)))
    job.pod("job-launcher")
    made = [world.find(*found) for found in _OBJECTS]
    for found in made:
        assert found["metadata"]["labels"] == {"app": "job"}
        (owner,) = found["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["controller"]) == ("MPIJob", "job", True)
    _, _, role, binding = made
    workers = ["job-worker-0", "job-worker-1"]
    assert role["rules"] == [
        {"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["pods"]},
        {
            "verbs": ["create"],
            "apiGroups": [""],
            "resources": ["pods/exec"],
            "resourceNames": workers,
        },
    ]
    (subject,) = binding["subjects"]
    assert (subject["kind"], subject["name"]) == ("ServiceAccount", "job-launcher")
    services = world.api.call("GET", world.path("Service")).object["items"]
    assert services == []


def test_files_of_a_job(world: World) -> None:
    job = world.submit(mpi("sleep 30", replica("mpi", "sleep 60", 2), slotsPerWorker=3))
    data = config(world)
    assert data["hostfile"] == "job-worker-0 slots=3\njob-worker-1 slots=3\n"
    assert data["kubexec.sh"] == (
        "#!/bin/sh\nset -x\nPOD_NAME=$1\nshift\n"
        '/opt/kube/kubectl exec ${POD_NAME} -- /bin/sh -c "$*"'
    )
    job.becomes("Running")
    script = "#!/bin/sh\necho job-worker-0:3\necho job-worker-1:3"
    eventually(lambda: config(world)["discover_hosts.sh"] == script)


def test_the_main_container_is_named_in_the_remote_shell(world: World) -> None:
    world.submit(mpi("sleep 30", mainContainer="mpi"))
    assert "kubectl exec ${POD_NAME} --container mpi -- /bin/sh" in config(world)["kubexec.sh"]


def test_pods_of_a_job_with_labels_and_environment(world: World) -> None:
    job = world.submit(mpi("sleep 30"))
    launcher, worker = job.pod("job-launcher"), job.pod("job-worker-0")
    common = {f"{LABEL}/job-name": "job", f"{LABEL}/operator-name": "mpijob-controller"}
    role, index = f"{LABEL}/replica-type", f"{LABEL}/replica-index"
    made = launcher.now()
    # It has no index, and its job-role is master as in other kinds.
    leads = {role: "launcher", f"{LABEL}/job-role": "master"}
    assert made["metadata"]["labels"] == {**common, **leads}
    assert worker.now()["metadata"]["labels"] == {**common, role: "worker", index: "0"}
    assert launcher.env() == {
        "OMPI_MCA_plm_rsh_agent": "/etc/mpi/kubexec.sh",
        "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
        "NVIDIA_VISIBLE_DEVICES": "",
        "NVIDIA_DRIVER_CAPABILITIES": "",
        "I_MPI_HYDRA_BOOTSTRAP": "rsh",
        "I_MPI_HYDRA_BOOTSTRAP_EXEC": "/etc/mpi/kubexec.sh",
    }
    assert worker.env() == {}
    assert made["spec"]["serviceAccountName"] == "job-launcher"
    (init,) = made["spec"]["initContainers"]
    assert init["name"] == "kubectl-delivery"
    mounts = {m["name"]: m["mountPath"] for m in made["spec"]["containers"][0]["volumeMounts"]}
    assert mounts == {"mpi-job-kubectl": "/opt/kube", "mpi-job-config": "/etc/mpi"}
    for pod in (launcher, worker):
        (owner,) = pod.now()["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"]) == ("MPIJob", "job")


def test_a_worker_without_a_command_sleeps(world: World) -> None:
    job = world.submit(mpi("sleep 30", replica("mpi", None)))
    (main,) = job.pod("job-worker-0").now()["spec"]["containers"]
    assert (main["command"], main["args"]) == (["sleep"], ["365d"])


def test_a_launcher_with_a_device_is_a_worker_too(world: World) -> None:
    resources = {"limits": {"nvidia.com/gpu": 1}}
    job = world.submit(mpi(replica("mpi", "sleep 30", resources=resources)))
    assert "NVIDIA_VISIBLE_DEVICES" not in job.pod("job-launcher").env()
    assert config(world)["hostfile"] == "job-launcher slots=1\njob-worker-0 slots=1\n"


def test_the_authors_variables_for_intel_mpi_are_kept(world: World) -> None:
    env = [{"name": "I_MPI_HYDRA_BOOTSTRAP", "value": "mine"}]
    job = world.submit(mpi(replica("mpi", "sleep 30", env=env)))
    found = [v for v in job.pod("job-launcher").now()["spec"]["containers"][0]["env"]]
    values = [v["value"] for v in found if v["name"] == "I_MPI_HYDRA_BOOTSTRAP"]
    assert values == ["mine"]


def test_a_service_account_of_the_authors_is_used(world: World) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "mine"}}
    world.create(account)
    job = world.submit(mpi(replica("mpi", "true", pod={"serviceAccountName": "mine"})))
    job.succeeds()
    assert not world.find("ServiceAccount", "job-launcher")
    (subject,) = world.find("RoleBinding", "job-launcher", RBAC)["subjects"]
    assert subject["name"] == "mine"


def test_the_number_of_workers_may_be_changed_while_the_job_runs(world: World) -> None:
    job = world.submit(mpi("sleep 30", replica("mpi", "sleep 60", 2)))
    job.becomes("Running")

    def resize(count: int) -> None:
        job.patch({"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": count}}}})
        names = [f"job-worker-{i}" for i in range(count)]
        settled(job, "job-launcher", *names)
        job.counts(Worker={"active": count})
        eventually(
            lambda: config(world)["hostfile"] == "".join(f"{name} slots=1\n" for name in names)
        )

    resize(3)
    resize(1)


def test_a_worker_that_is_deleted_is_made_again_or_fails_the_job(world: World) -> None:
    """It depends on whether the operator has seen how it ended. So nothing is recorded."""
    job = world.start(mpi("sleep 60"))
    job.becomes("Running")
    uid = Pod(world, "job-worker-0").now()["metadata"]["uid"]
    Pod(world, "job-worker-0").delete()

    def look() -> bool:
        pod = world.find("Pod", "job-worker-0")
        return job.is_true("Failed") or bool(pod and pod["metadata"]["uid"] != uid)

    eventually(look, job.now)


# ---- names, defaults and rejections


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("m" * 63, id="long"),
        pytest.param("1-job", id="digit-first"),
        pytest.param("my.job", id="dot"),
    ],
)
def test_names_that_other_kinds_refuse_are_taken(world: World, name: str) -> None:
    job = world.submit(mpi(name=name))
    job.succeeds()
    assert job.pod_names() == [f"{name}-launcher", f"{name}-worker-0"]


def test_a_name_that_is_too_long_keeps_the_job_from_starting_without_a_word(world: World) -> None:
    """A second job, created later, shows that its turn has passed."""
    job = world.start(mpi(name="m" * 64))
    world.start(mpi(name="other")).becomes("Succeeded")
    assert job.status == {}
    assert not [event for event in world.events() if event.object.endswith(job.name)]


def test_defaults_are_not_written_back(world: World) -> None:
    roles = {
        "Launcher": replica("mpi", "sleep 30", policy=None),
        "Worker": replica("mpi", policy=None),
    }
    del roles["Launcher"]["replicas"], roles["Worker"]["replicas"]
    job = world.submit(mpi_job_v1(roles))
    launcher = job.pod("job-launcher").now()
    assert launcher["spec"]["restartPolicy"] == "Never"
    assert job.now()["spec"] == {"mpiReplicaSpecs": roles, "runPolicy": {"suspend": False}}
    settled(job, "job-launcher")


_BAD = {
    "no-launcher": (
        {"Worker": replica("mpi")},
        "MPIReplicaSpec is not valid: Master ReplicaSpec must be present",
    ),
    "two-launchers": (
        {"Launcher": replica("mpi", count=2), "Worker": replica("mpi")},
        "MPIReplicaSpec is not valid: There must be only 1 launcher replica",
    ),
    "unknown-role": (
        {"Launcher": replica("mpi"), "Chief": replica("mpi")},
        "MPIReplicaType is Chief but must be one of [Launcher Worker]",
    ),
    "no-image": (
        {"Launcher": replica("mpi", image="")},
        "MPIReplicaSpec is not valid: Image is undefined in the container of Launcher",
    ),
}


@pytest.mark.parametrize("bad", _BAD)
def test_a_bad_job_is_accepted_and_refused_by_an_event_only(world: World, bad: str) -> None:
    """There is no webhook for this kind. Its status stays empty for ever; nothing is created."""
    roles, words = _BAD[bad]
    job = world.submit(mpi_job_v1(roles))
    event = world.told("MPIJobFailedValidation", "MPIJob/job")
    assert (event.type, event.message) == ("Warning", f"MPIJob failed validation because {words}")
    assert job.status == {}
    assert job.pods() == []


def test_a_restart_policy_that_does_not_exist_leaves_workers_without_a_launcher(
    world: World,
) -> None:
    job = world.submit(mpi(replica("mpi", policy="Sometimes")))
    event = world.told("MPIJobFailed", "MPIJob/job")
    wanted = 'Pod "job-launcher" is invalid: spec.restartPolicy: Unsupported value: "Sometimes"'
    assert event.message.startswith(f"launcher pod created failed: {wanted}")
    job.pod("job-worker-0").phase("Running")
    assert job.status == {}
    settled(job, "job-worker-0")


@pytest.mark.parametrize("manager", ["kueue.x-k8s.io/multikueue", "nobody"])
def test_a_job_of_another_manager_is_left_alone(world: World, manager: str) -> None:
    """Whether that manager exists or not. A second job, created later, shows that its turn has
    passed."""
    job = world.start(mpi(run_policy={"managedBy": manager}))
    world.start(mpi(name="other")).becomes("Succeeded")
    assert job.status == {}
    assert not [event for event in world.events() if event.object == "MPIJob/job"]


def test_mpi_jobs_are_served_as_v1_only(world: World) -> None:
    assert world.api.serves("kubeflow.org/v1", "MPIJob")
    assert not world.api.serves("kubeflow.org/v2beta1", "MPIJob")
