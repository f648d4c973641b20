"""MPIJob of mpi-operator (v2beta1)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import pytest

from tests.cluster.jobs import mpi_job, replica
from tests.cluster.v1 import made_anew
from tests.cluster.world import Job, Pod, World, eventually
from tests.control_plane.api import MERGE, Manifest

pytestmark = pytest.mark.profile("mpi-operator")

LABEL = "training.kubeflow.org"
NOWHERE = {"nodeSelector": {"no": "such-node"}}
ONCE = {"backoffLimit": 0}
WORK = {"volumes": [{"name": "work", "emptyDir": {}}]}
WORK_MOUNT = [{"name": "work", "mountPath": "/work"}]

MPIRUN = """
import os, subprocess, sys
agent = os.environ["OMPI_MCA_plm_rsh_agent"]
options = os.environ.get("OMPI_MCA_plm_rsh_args", "").split()
hosts = [line.split()[0] for line in open(os.environ["OMPI_MCA_orte_default_hostfile"])]
ranks = [
    subprocess.Popen([agent, *options, "-x", host, *sys.argv[1:]], stdout=subprocess.PIPE)
    for host in hosts
]
for rank in ranks:
    sys.stdout.write(rank.communicate()[0].decode())
sys.exit(max(rank.returncode for rank in ranks))
"""


def mpi(
    launcher: str | Manifest = "true", worker: str | Manifest = "sleep 60", **spec: Any
) -> Manifest:
    """Scripts or whole roles. The launcher is tried once unless `run_policy` says otherwise."""
    roles = {
        "Launcher": launcher if isinstance(launcher, dict) else replica("mpi", launcher),
        "Worker": worker if isinstance(worker, dict) else replica("mpi", worker),
    }
    spec["run_policy"] = ONCE | spec.get("run_policy", {})
    return mpi_job(roles, **spec)


def launchers(job: Job) -> list[Manifest]:
    role = f"{LABEL}/job-role"
    return [pod for pod in job.pods() if pod["metadata"]["labels"].get(role) == "launcher"]


def launcher_of(job: Job) -> Pod:
    """The launcher's pod, as soon as it exists."""
    pods = eventually(lambda: launchers(job), job.now)
    return Pod(job.world, pods[0]["metadata"]["name"])


def launcher_job(world: World, name: str = "job-launcher") -> Manifest:
    return eventually(lambda: world.find("Job", name, "batch/v1"))


def config(world: World) -> dict[str, str]:
    return dict(eventually(lambda: world.find("ConfigMap", "job-config"))["data"])


def hosts(world: World, form: str, *names: str) -> str:
    return "".join(form.format(f"{name}.job.{world.namespace}.svc") + "\n" for name in names)


def seconds(earlier: str, later: str) -> float:
    read = "%Y-%m-%dT%H:%M:%SZ"
    return (datetime.strptime(later, read) - datetime.strptime(earlier, read)).total_seconds()


def evict(pod: Pod) -> None:
    """Evicts a pod that waits for a node, so that no agent contradicts."""
    evicted = {"status": {"phase": "Failed", "reason": "Evicted", "message": "The node was low."}}
    path = f"{pod.path}/status"
    pod.world.api.call("PATCH", path, evicted, content_type=MERGE).required("an eviction")


def settled(job: Job, names: Iterable[str]) -> None:
    """Waits until exactly these pods exist; `*` stands for what Kubernetes appends to a name."""
    patterns = [re.compile(name.replace("*", "[a-z0-9]{5}")) for name in names]

    def look() -> bool:
        found = job.pod_names()
        return len(found) == len(patterns) and all(
            pattern.fullmatch(name) for pattern, name in zip(patterns, found, strict=True)
        )

    eventually(look, job.pod_names)


# ---- success


def test_success_of_launcher_and_workers(world: World) -> None:
    job = world.submit(mpi("sleep 1", replica("mpi", "sleep 60", 2)))
    end = job.succeeds()
    name = f"{world.namespace}/job"
    assert end["reason"] == "MPIJobSucceeded"
    assert end["message"] == f"MPIJob {name} successfully completed."
    created, running = (job.conditions()[key] for key in ("Created", "Running"))
    assert (created["status"], created["reason"]) == ("True", "MPIJobCreated")
    assert created["message"] == f"MPIJob {name} is created."
    assert (running["status"], running["reason"]) == ("False", "MPIJobRunning")
    assert job.status["replicaStatuses"] == {"Launcher": {"succeeded": 1}, "Worker": {}}
    assert job.status["startTime"] <= job.status["completionTime"]
    settled(job, ["job-launcher-*", "job-worker-0", "job-worker-1"])


def test_all_of_a_job_that_runs_is_told_by_its_conditions_and_events(world: World) -> None:
    job = world.submit(mpi("sleep 30", replica("mpi", "sleep 60", 2)))
    running = job.becomes("Running")
    name = f"{world.namespace}/job"
    assert (running["reason"], running["message"]) == (
        "MPIJobRunning",
        f"MPIJob {name} is running.",
    )
    assert job.status["replicaStatuses"] == {"Launcher": {"active": 1}, "Worker": {"active": 2}}
    pod = launcher_of(job).name
    world.told("MPIJobRunning")
    told = {event[:3] for event in world.events()}
    assert told >= {
        ("MPIJob/job", "Normal", "MPIJobCreated"),
        ("MPIJob/job", "Normal", "MPIJobRunning"),
        ("Job/job-launcher", "Normal", "SuccessfulCreate"),
        (f"Pod/{pod}", "Normal", "Scheduled"),
    }
    # There are no events about the workers' pods, unlike with training-operator.
    about_workers = {event.reason for event in world.events() if "worker" in event.message}
    assert about_workers <= {"Scheduled"}


def test_the_launcher_finds_hostfile_and_hosts_and_key(world: World) -> None:
    script = (
        'test "$K_MPI_JOB_ROLE" = launcher && test "$(hostname; echo $HOSTNAME)" != "" &&'
        " test $(grep -c slots=1 $OMPI_MCA_orte_default_hostfile) = 2 &&"
        " cmp /etc/mpi/hostfile $OMPI_MCA_orte_default_hostfile &&"
        " test -x /etc/mpi/discover_hosts.sh && grep -q PRIVATE /root/.ssh/id_rsa &&"
        " cmp /root/.ssh/id_rsa.pub /root/.ssh/authorized_keys"
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
    lines = launcher_of(job).log().text.splitlines()
    assert lines == ["worker job-worker-0", "worker job-worker-1"]


def test_a_fast_launcher_succeeds_and_the_job_never_was_running(world: World) -> None:
    job = world.submit(mpi(worker=replica("mpi", pod=NOWHERE)))
    job.succeeds()
    running = job.conditions()["Running"]
    assert (running["status"], running["reason"]) == ("False", "MPIJobRunning")
    name = f"{world.namespace}/job"
    wanted = f"MPIJob {name} is finished but Running condition was never set."
    assert running["message"] == wanted


def test_a_launcher_without_workers_is_a_job(world: World) -> None:
    roles = {"Launcher": replica("mpi", "test ! -s /etc/mpi/hostfile")}
    job = world.submit(mpi_job(roles, run_policy=ONCE))
    job.succeeds()
    settled(job, ["job-launcher-*"])


# ---- failure of the launcher


def test_a_launcher_that_fails_without_retries_fails_the_job(world: World) -> None:
    job = world.submit(mpi("exit 3"))
    end = job.fails()
    # After the slash and the colon come reason and message of the pod, which has none.
    assert end["reason"] == "BackoffLimitExceeded/"
    assert end["message"] == "Job has reached the specified backoff limit: "
    assert job.status["completionTime"]
    assert job.status["replicaStatuses"]["Launcher"] == {"failed": 1}
    status = launcher_of(job).status
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
    world.told("BackoffLimitExceeded/", "MPIJob/job")
    world.told("BackoffLimitExceeded", "Job/job-launcher")


def test_without_a_limit_a_launcher_that_never_restarts_is_tried_again_as_a_new_pod(
    world: World,
) -> None:
    """The only scenario that waits for a retry; the second one would come after 20 s."""
    data = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "exit"}}
    world.create({**data, "data": {"code": "3"}})
    source = {"configMapKeyRef": {"name": "exit", "key": "code"}}
    env = [{"name": "CODE", "valueFrom": source}]
    roles = {
        "Launcher": replica("mpi", "exit $CODE", env=env),
        "Worker": replica("mpi", "sleep 60"),
    }
    job = world.submit(mpi_job(roles))
    first = launcher_of(job)
    ended = first.ends()["containerStatuses"][0]["state"]["terminated"]
    path = world.path("ConfigMap", "exit")
    world.api.call("PATCH", path, {"data": {"code": "0"}}, content_type=MERGE)
    assert launcher_job(world)["spec"]["backoffLimit"] == 6
    job.succeeds()
    second = max(launchers(job), key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
    wait = seconds(ended["finishedAt"], second["metadata"]["creationTimestamp"])
    assert wait >= 9
    assert len(launchers(job)) == 2
    assert job.status["replicaStatuses"]["Launcher"] == {"succeeded": 1, "failed": 1}
    assert "Failed" not in job.conditions()


def test_a_launcher_restarts_in_place_under_on_failure(world: World) -> None:
    script = "test -e /work/once || { touch /work/once; exit 3; }"
    # The default of the launcher, not of workers.
    launcher = replica("mpi", script, policy=None, pod=WORK, volumeMounts=WORK_MOUNT)
    job = world.submit(mpi(launcher, run_policy={"backoffLimit": 3}))
    job.succeeds()
    (pod,) = launchers(job)
    assert pod["spec"]["restartPolicy"] == "OnFailure"
    (status,) = pod["status"]["containerStatuses"]
    assert status["restartCount"] == 1
    assert status["lastState"]["terminated"]["exitCode"] == 3
    assert job.status["replicaStatuses"]["Launcher"] == {"succeeded": 1}


def test_a_launcher_that_restarted_up_to_the_limit_is_gone_at_the_failure(world: World) -> None:
    launcher = replica("mpi", "exit 3", policy="OnFailure")
    job = world.submit(mpi(launcher, run_policy={"backoffLimit": 1}))
    end = job.fails()
    assert end["reason"].startswith("BackoffLimitExceeded")
    settled(job, ["job-worker-0"])
    world.told("SuccessfulDelete", "Job/job-launcher")


def test_the_deadline_ends_the_launcher_and_leaves_the_workers(world: World) -> None:
    job = world.submit(mpi("sleep 60", run_policy={"activeDeadlineSeconds": 2}))
    end = job.fails()
    assert end["reason"] == "DeadlineExceeded"
    assert end["message"] == "Job was active longer than specified deadline"
    assert seconds(job.status["startTime"], job.status["completionTime"]) < 50
    settled(job, ["job-worker-0"])


# ---- workers


def test_workers_that_die_never_fail_the_job(world: World) -> None:
    job = world.submit(mpi("sleep 3", replica("mpi", "exit 1", 2)))
    job.counts(Worker={"failed": 2})
    assert not job.is_true("Failed")
    job.succeeds()
    # When they have ended they are no longer counted.
    assert job.status["replicaStatuses"]["Worker"] == {}
    assert all(Pod(world, f"job-worker-{i}").status["phase"] == "Failed" for i in (0, 1))


@pytest.mark.parametrize(
    ("pod", "fields", "reason"),
    [
        pytest.param(NOWHERE, {}, "FailedScheduling", id="unschedulable"),
        pytest.param({}, {"image": "missing/image"}, "Failed", id="image"),
    ],
)
def test_a_worker_that_cannot_come_up_keeps_running_from_being_set(
    world: World, pod: Manifest, fields: Manifest, reason: str
) -> None:
    worker = replica("mpi", "sleep 60", 2, pod=pod, **fields)
    job = world.submit(mpi("sleep 30", worker))
    launcher_of(job).phase("Running")
    world.told(reason, "Pod/job-worker-1")
    job.counts(Launcher={"active": 1}, Worker={})
    assert set(job.conditions()) == {"Created"}


def test_a_worker_that_is_deleted_is_made_again(world: World) -> None:
    job = world.submit(mpi("sleep 30"))
    job.becomes("Running")
    first = job.first_seen("job-worker-0")
    Pod(world, "job-worker-0").delete()
    made_anew(job, first)
    assert job.is_true("Running")


def test_an_evicted_worker_fails_the_job_which_succeeds_in_the_end(world: World) -> None:
    """Failed is no verdict without completionTime."""
    job = world.submit(mpi("sleep 3", replica("mpi", pod=NOWHERE)))
    evict(job.pod("job-worker-0"))
    failed = job.becomes("Failed")
    assert (failed["reason"], failed["message"]) == ("MPIJobEvicted", "1/1 workers are evicted")
    assert "completionTime" not in job.status
    world.told("MPIJobEvicted", "MPIJob/job")
    job.becomes("Succeeded")
    assert job.conditions()["Failed"]["status"] == "False"
    job.succeeds()


def test_the_number_of_workers_may_be_changed_while_the_job_runs(world: World) -> None:
    job = world.submit(mpi("sleep 30", replica("mpi", "sleep 60", 2)))
    job.becomes("Running")

    def resize(count: int) -> None:
        job.patch({"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": count}}}})
        names = [f"job-worker-{i}" for i in range(count)]
        settled(job, ["job-launcher-*", *names])
        eventually(lambda: config(world)["hostfile"] == hosts(world, "{} slots=1", *names))
        script = "#!/bin/sh\n" + hosts(world, "echo {}", *names)
        eventually(lambda: config(world)["discover_hosts.sh"] == script, lambda: config(world))

    resize(3)
    resize(1)
    job.counts(Worker={"active": 1})
    assert job.is_true("Running")


# ---- the launcher's start


def test_the_launcher_does_not_wait_for_workers(world: World) -> None:
    job = world.submit(mpi("sleep 30", replica("mpi", pod=NOWHERE)))
    launcher_of(job).phase("Running")
    assert Pod(world, "job-worker-0").status["phase"] == "Pending"


def test_the_launcher_waits_for_workers_if_told_so(world: World) -> None:
    gate = {"schedulingGates": [{"name": "example.org/gate"}]}
    worker = replica("mpi", "sleep 60", pod=gate)
    job = world.submit(mpi("true", worker, launcherCreationPolicy="WaitForWorkersReady"))
    pod = job.pod("job-worker-0")
    job.until(lambda now: now.get("status", {}).get("replicaStatuses"))
    assert not world.find("Job", "job-launcher", "batch/v1")
    open_it = {"spec": {"schedulingGates": None}}
    world.api.call("PATCH", pod.path, open_it, content_type=MERGE).required("no gate")
    job.succeeds()
    ready = next(c for c in pod.status["conditions"] if c["type"] == "Ready")
    made = launcher_job(world)["metadata"]["creationTimestamp"]
    assert ready["lastTransitionTime"] <= made


def test_a_launcher_that_waits_for_workers_is_never_made_if_they_end(world: World) -> None:
    """A worker that has ended is not ready, and is not replaced."""
    worker = replica("mpi", pod=NOWHERE)
    job = world.submit(mpi("true", worker, launcherCreationPolicy="WaitForWorkersReady"))
    pod = job.pod("job-worker-0")
    ended = {"status": {"phase": "Failed"}}
    world.api.call("PATCH", f"{pod.path}/status", ended, content_type=MERGE).required("an end")
    job.counts(Worker={"failed": 1})
    assert set(job.conditions()) == {"Created"}
    assert not world.find("Job", "job-launcher", "batch/v1")


def test_a_creation_policy_that_does_not_exist_means_waiting(world: World) -> None:
    """Neither the schema nor the operator knows the valid values."""
    worker = replica("mpi", pod=NOWHERE)
    job = world.submit(mpi("true", worker, launcherCreationPolicy="Later"))
    job.counts(Worker={})
    assert set(job.conditions()) == {"Created"}
    assert not world.find("Job", "job-launcher", "batch/v1")


def test_a_launcher_that_finds_no_node_leaves_the_workers_running(world: World) -> None:
    job = world.submit(mpi(replica("mpi", pod=NOWHERE)))
    world.told("FailedScheduling", f"Pod/{launcher_of(job).name}")
    job.counts(Launcher={}, Worker={"active": 1})
    assert set(job.conditions()) == {"Created"}


def test_a_launchers_pod_that_is_deleted_counts_as_failed(world: World) -> None:
    job = world.submit(mpi("sleep 60"))
    job.becomes("Running")
    launcher_of(job).delete()
    end = job.fails()
    assert end["reason"].startswith("BackoffLimitExceeded")
    settled(job, ["job-worker-0"])


def test_a_launchers_job_that_is_deleted_is_made_again(world: World) -> None:
    job = world.submit(mpi("sleep 2"))
    job.becomes("Running")
    first = launcher_job(world)["metadata"]["uid"]
    background = {"propagationPolicy": "Background"}
    world.api.call("DELETE", world.path("Job", "job-launcher", "batch/v1"), background)
    eventually(lambda: launcher_job(world)["metadata"]["uid"] != first)
    job.succeeds()


# ---- clean-up


@pytest.mark.parametrize("end", ["success", "failure"])
@pytest.mark.parametrize(
    ("policy", "left"),
    [
        pytest.param("None", ["job-launcher-*", "job-worker-0", "job-worker-1"], id="None"),
        pytest.param("Running", ["job-launcher-*", "job-worker-0"], id="Running"),
        pytest.param("All", ["job-launcher-*"], id="All"),
    ],
)
def test_what_is_left_of_the_pods(world: World, policy: str, left: list[str], end: str) -> None:
    """Worker 0 has ended, worker 1 still runs. The launcher always stays."""
    code = "0" if end == "success" else "3"
    worker = replica("mpi", "test $HOSTNAME = job-worker-0 || sleep 60", 2)
    launcher = f"sleep 2; exit {code}"
    job = world.submit(mpi(launcher, worker, run_policy={"cleanPodPolicy": policy}))
    job.pod("job-worker-0").ends()
    job.succeeds() if end == "success" else job.fails()
    settled(job, left)
    if policy == "None":
        assert Pod(world, "job-worker-1").status["phase"] == "Running"


def test_a_worker_that_waits_for_a_node_is_cleaned_up_as_one_that_runs(world: World) -> None:
    worker = replica("mpi", pod=NOWHERE)
    job = world.submit(mpi("sleep 1", worker, run_policy={"cleanPodPolicy": "Running"}))
    job.succeeds()
    settled(job, ["job-launcher-*"])


def test_a_time_to_live_removes_the_launcher_only(world: World) -> None:
    job = world.submit(mpi("sleep 1", run_policy={"ttlSecondsAfterFinished": 0}))
    job.succeeds()
    eventually(lambda: not world.find("Job", "job-launcher", "batch/v1"))
    settled(job, ["job-worker-0"])
    assert job.is_true("Succeeded")
    assert world.find("ConfigMap", "job-config")


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
def test_deletion_takes_everything_along(world: World, policy: str) -> None:
    job = world.submit(mpi("sleep 60"))
    job.becomes("Running")
    assert job.delete(propagationPolicy=policy).code == 200
    eventually(lambda: job.is_gone() and not job.pod_names())
    wanted = [*_OBJECTS, ("Job", "job-launcher", "batch/v1")]
    eventually(lambda: not any(world.find(*found) for found in wanted))


def test_deletion_may_leave_orphans(world: World) -> None:
    job = world.submit(mpi("sleep 60"))
    job.becomes("Running")
    job.delete(propagationPolicy="Orphan")
    eventually(job.is_gone)
    worker = Pod(world, "job-worker-0").until(lambda p: not p["metadata"].get("ownerReferences"))
    assert worker["status"]["phase"] == "Running"
    launched = launcher_of(job).now()
    assert launched["status"]["phase"] == "Running"
    assert [owner["kind"] for owner in launched["metadata"]["ownerReferences"]] == ["Job"]


# ---- suspension


def test_a_job_that_is_suspended_from_the_start_has_no_pods_until_it_is_resumed(
    world: World,
) -> None:
    job = world.submit(mpi("sleep 1", run_policy={"suspend": True}))
    suspended = job.becomes("Suspended")
    assert (suspended["reason"], suspended["message"]) == ("MPIJobSuspended", "MPIJob suspended")
    running = job.conditions()["Running"]
    assert (running["status"], running["reason"]) == ("False", "MPIJobSuspended")
    assert running["message"] == f"MPIJob {world.namespace}/job is suspended."
    assert launcher_job(world)["spec"]["suspend"] is True
    assert job.pods() == []
    assert "startTime" not in job.status
    job.patch({"spec": {"runPolicy": {"suspend": False}}})
    job.succeeds()
    resumed = job.conditions()["Suspended"]
    assert (resumed["status"], resumed["reason"]) == ("False", "MPIJobResumed")
    assert resumed["message"] == "MPIJob resumed"
    assert job.status["startTime"] >= resumed["lastTransitionTime"]


def test_a_job_that_is_suspended_while_it_runs_loses_its_pods_and_starts_anew(
    world: World,
) -> None:
    job = world.submit(mpi("sleep 2"))
    job.becomes("Running")
    first = launcher_of(job).now()["metadata"]["uid"]
    job.patch({"spec": {"runPolicy": {"suspend": True}}})
    job.becomes("Suspended")
    eventually(lambda: not job.pods(), job.pod_names)
    running = job.until(lambda now: not job.is_true("Running"))["status"]
    assert running["replicaStatuses"] == {"Launcher": {}, "Worker": {}}
    world.told("MPIJobSuspended", "MPIJob/job")
    job.patch({"spec": {"runPolicy": {"suspend": False}}})
    job.becomes("Running", "Succeeded")
    assert launcher_of(job).now()["metadata"]["uid"] != first
    job.succeeds()
    world.told("MPIJobResumed", "MPIJob/job")


# ---- the objects


def test_objects_of_a_job_and_their_owner(world: World) -> None:
    job = world.submit(mpi("sleep 30"))
    launcher_of(job)
    batch = launcher_job(world)
    made = [batch, *(world.find(kind, name) for kind, name in _OBJECTS)]
    for found in made:
        assert found["metadata"]["labels"] == {"app": "job"}
        (owner,) = found["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["controller"]) == ("MPIJob", "job", True)
    config_map, secret, service = made[1:]
    assert config_map["data"]["hostfile"] == hosts(world, "{} slots=1", "job-worker-0")
    assert secret["type"] == "kubernetes.io/ssh-auth"
    assert set(secret["data"]) == {"ssh-privatekey", "ssh-publickey"}
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"] == {
        f"{LABEL}/job-name": "job",
        f"{LABEL}/operator-name": "mpi-operator",
    }
    assert "publishNotReadyAddresses" not in service["spec"]
    assert batch["spec"]["podReplacementPolicy"] == "Failed"
    assert batch["spec"]["completionMode"] == "NonIndexed"


_OBJECTS = (("ConfigMap", "job-config"), ("Secret", "job-ssh"), ("Service", "job"))


def test_pods_of_a_job_with_labels_names_and_owners(world: World) -> None:
    job = world.submit(mpi("sleep 30"))
    launcher, worker = launcher_of(job).now(), job.pod("job-worker-0").now()
    common = {f"{LABEL}/job-name": "job", f"{LABEL}/operator-name": "mpi-operator"}
    assert worker["metadata"]["labels"] == {
        **common,
        f"{LABEL}/job-role": "worker",
        f"{LABEL}/replica-index": "0",
    }
    labels = launcher["metadata"]["labels"]
    assert labels.items() >= {**common, f"{LABEL}/job-role": "launcher"}.items()
    assert f"{LABEL}/replica-index" not in labels
    assert labels["batch.kubernetes.io/job-name"] == labels["job-name"] == "job-launcher"
    assert re.fullmatch(r"job-launcher-[a-z0-9]{5}", launcher["metadata"]["name"])
    # Its hostname lacks the suffix of the pod's name.
    assert (launcher["spec"]["hostname"], launcher["spec"]["subdomain"]) == ("job-launcher", "job")
    assert (worker["spec"]["hostname"], worker["spec"]["subdomain"]) == ("job-worker-0", "job")
    owners = [pod["metadata"]["ownerReferences"][0] for pod in (launcher, worker)]
    assert [(o["kind"], o["name"]) for o in owners] == [("Job", "job-launcher"), ("MPIJob", "job")]


def test_a_worker_without_a_command_serves_ssh(world: World) -> None:
    job = world.submit(mpi("sleep 30", replica("mpi", None)))
    pod = job.pod("job-worker-0")
    (main,) = pod.now()["spec"]["containers"]
    assert main["command"] == ["/usr/sbin/sshd", "-De"]
    assert pod.env() == {"K_MPI_JOB_ROLE": "worker"}
    mounts = {mount["name"]: mount["mountPath"] for mount in main["volumeMounts"]}
    assert mounts == {"ssh-auth": "/root/.ssh"}
    search = f"job.{world.namespace}.svc.cluster.local"
    assert pod.now()["spec"]["dnsConfig"] == {"searches": [search]}


_OPEN_MPI = {
    "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
    "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
    "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
    "OMPI_MCA_orte_set_default_slots": "2",
}
_INTEL = {
    "I_MPI_HYDRA_HOST_FILE": "/etc/mpi/hostfile",
    "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS": "-o ConnectionAttempts=10",
    "I_MPI_PERHOST": "2",
}
_MPICH = {
    "HYDRA_HOST_FILE": "/etc/mpi/hostfile",
    "HYDRA_LAUNCH_EXTRA_ARGS": "-o ConnectionAttempts=10",
}


@pytest.mark.parametrize(
    ("implementation", "env", "line"),
    [
        pytest.param("OpenMPI", _OPEN_MPI, "{} slots=2", id="OpenMPI"),
        pytest.param("Intel", _INTEL, "{}:2", id="Intel"),
        pytest.param("MPICH", _MPICH, "{}:2", id="MPICH"),
    ],
)
def test_each_implementation_has_its_variables_and_hostfile(
    world: World, implementation: str, env: dict[str, str], line: str
) -> None:
    job = world.submit(mpi("sleep 30", slotsPerWorker=2, mpiImplementation=implementation))
    no_devices = {"NVIDIA_VISIBLE_DEVICES": "", "NVIDIA_DRIVER_CAPABILITIES": ""}
    assert launcher_of(job).env() == {"K_MPI_JOB_ROLE": "launcher", **env, **no_devices}
    assert config(world)["hostfile"] == hosts(world, line, "job-worker-0")
    script = "#!/bin/sh\n" + hosts(world, "echo {}", "job-worker-0")
    eventually(lambda: config(world)["discover_hosts.sh"] == script)


def test_a_launcher_may_be_a_worker_too(world: World) -> None:
    job = world.submit(mpi("sleep 30", runLauncherAsWorker=True))
    launcher, worker = launcher_of(job), job.pod("job-worker-0")
    assert "NVIDIA_VISIBLE_DEVICES" not in launcher.env()
    index = f"{LABEL}/replica-index"
    assert launcher.now()["metadata"]["labels"][index] == "0"
    # One more than the number in its name.
    assert worker.now()["metadata"]["labels"][index] == "1"
    names = ("job-launcher", "job-worker-0")
    assert config(world)["hostfile"] == hosts(world, "{} slots=1", *names)
    assert world.find("Service", "job")["spec"]["publishNotReadyAddresses"] is True


def test_what_the_author_wrote_into_pods_is_kept(world: World) -> None:
    launcher = replica("mpi", "sleep 30", env=[{"name": "K_MPI_JOB_ROLE", "value": "mine"}])
    launcher["template"]["metadata"] = {"labels": {"a": "1"}, "annotations": {"b": "2"}}
    launcher["template"]["spec"]["restartPolicy"] = "OnFailure"
    job = world.submit(mpi(launcher))
    pod = launcher_of(job).now()
    assert pod["metadata"]["labels"]["a"] == "1"
    assert pod["metadata"]["annotations"]["b"] == "2"
    # Unlike a variable of the operator: the last one of a name counts.
    values = [v for v in pod["spec"]["containers"][0]["env"] if v["name"] == "K_MPI_JOB_ROLE"]
    assert [v["value"] for v in values] == ["mine", "launcher"]
    assert pod["spec"]["restartPolicy"] == "Never"
    event = world.told("SetPodTemplateRestartPolicy", "MPIJob/job")
    wanted = "Restart policy in pod template overridden by restart policy in replica spec"
    assert (event.type, event.message) == ("Warning", wanted)


def test_a_path_for_keys_of_the_authors_choice(world: World) -> None:
    job = world.submit(mpi("test -s /keys/id_rsa", sshAuthMountPath="/keys"))
    job.succeeds()
    spec = launcher_of(job).now()["spec"]
    secret = next(v["secret"] for v in spec["volumes"] if v["name"] == "ssh-auth")
    # For /root/.ssh it is 0600.
    assert secret["defaultMode"] == 0o644


def test_a_long_name_is_cut_in_the_name_of_the_launchers_pod_only(world: World) -> None:
    name = "m" * 54
    job = world.submit(mpi("true", name=name))
    job.succeeds()
    pod = launcher_of(job).now()["metadata"]
    assert re.fullmatch(rf"{name}-lau[a-z0-9]{{5}}", pod["name"])
    assert pod["labels"][f"{LABEL}/job-name"] == name
    assert Pod(world, f"{name}-worker-0").now()["metadata"]["name"]


# ---- defaults and rejections


def test_defaults_are_not_written_back(world: World) -> None:
    roles = {"Launcher": replica("mpi", "sleep 30", policy=None), "Worker": replica("mpi")}
    del roles["Launcher"]["replicas"]
    manifest = mpi_job(roles)
    job = world.submit(manifest)
    launcher_of(job)
    defaults = {
        "launcherCreationPolicy": "AtStartup",
        "mpiImplementation": "OpenMPI",
        "runLauncherAsWorker": False,
        "slotsPerWorker": 1,
        "sshAuthMountPath": "/root/.ssh",
    }
    spec = job.now()["spec"]
    assert spec == {**manifest["spec"], **defaults, "runPolicy": {"suspend": False}}


def _without_launcher(manifest: Manifest) -> None:
    del manifest["spec"]["mpiReplicaSpecs"]["Launcher"]


def _with(path: str, value: object) -> Any:
    def change(manifest: Manifest) -> None:
        *keys, last = path.split(".")
        found = manifest
        for key in keys:
            found = found[key]
        found[last] = value

    return change


_ROLES = "spec.mpiReplicaSpecs"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param(
            _without_launcher,
            "spec.mpiReplicaSpecs[Launcher]: Required value: must have Launcher replica spec",
            id="no-launcher",
        ),
        pytest.param(
            _with(f"{_ROLES}.Launcher.replicas", 2),
            "spec.mpiReplicaSpecs[Launcher].replicas: Invalid value: 2: must be 1",
            id="two-launchers",
        ),
        pytest.param(
            _with(f"{_ROLES}.Worker.replicas", 0),
            "spec.mpiReplicaSpecs[Worker].replicas: Invalid value: 0: must be greater than or"
            " equal to 1",
            id="no-workers",
        ),
        pytest.param(
            _with(f"{_ROLES}.Worker.restartPolicy", "ExitCode"),
            'spec.mpiReplicaSpecs[Worker].restartPolicy: Unsupported value: "ExitCode": supported'
            ' values: "Never", "OnFailure"',
            id="exit-code",
        ),
        pytest.param(
            _with("spec.runPolicy.cleanPodPolicy", "Sometimes"),
            'spec.runPolicy.cleanPodPolicy: Unsupported value: "Sometimes": supported values:'
            ' "All", "None", "Running"',
            id="clean-pod-policy",
        ),
        pytest.param(
            _with("spec.runPolicy.backoffLimit", -1),
            "spec.runPolicy.backoffLimit: Invalid value: -1: must be greater than or equal to 0",
            id="backoff-limit",
        ),
        pytest.param(
            _with("spec.slotsPerWorker", -1),
            "spec.slotsPerWorker: Invalid value: -1: must be greater than or equal to 0",
            id="slots",
        ),
        pytest.param(
            _with("metadata.name", "m" * 55),
            f'metadata.name: Invalid value: "{"m" * 55}": will not able to create pod and service'
            f' with invalid DNS label "{"m" * 55}-worker-0": must be no more than 63 characters',
            id="long-name",
        ),
        pytest.param(
            _with("metadata.name", "1-job"),
            'metadata.name: Invalid value: "1-job": will not able to create pod and service with'
            ' invalid DNS label "1-job-worker-0"',
            id="digit-first",
        ),
    ],
)
def test_a_bad_job_is_accepted_and_refused_by_an_event_only(
    world: World, change: Any, words: str
) -> None:
    """Its status stays empty for ever; nothing is created."""
    manifest = mpi()
    change(manifest)
    job = world.submit(manifest)
    event = world.told("ValidationError", f"MPIJob/{job.name}")
    assert event.type == "Warning"
    assert event.message.startswith(f"Found validation errors: {words}")
    assert job.status == {}
    assert job.pods() == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param(
            _with("spec.mpiImplementation", "LAM"),
            'spec.mpiImplementation: Unsupported value: "LAM": supported values: "OpenMPI",'
            ' "Intel", "MPICH"',
            id="implementation",
        ),
        pytest.param(
            _with("spec.mpiReplicaSpecs", None), "spec.mpiReplicaSpecs: Required value", id="roles"
        ),
    ],
)
def test_what_the_schema_refuses_is_invalid(world: World, change: Any, words: str) -> None:
    manifest = mpi()
    change(manifest)
    refused = world.try_create(manifest)
    assert (refused.code, refused.reason) == (422, "Invalid")
    assert words in refused.message


@pytest.mark.parametrize("manager", ["kueue.x-k8s.io/multikueue", "nobody"])
def test_a_job_of_another_manager_is_left_alone(world: World, manager: str) -> None:
    """Whether that manager exists or not. A second job, created later, shows that its turn has
    passed."""
    job = world.start(mpi(run_policy={"managedBy": manager}))
    world.start(mpi(name="other")).becomes("Succeeded")
    assert job.status == {}
    assert not [event for event in world.events() if event.object == "MPIJob/job"]


def test_a_foreign_object_of_a_needed_name_keeps_the_job_from_starting(world: World) -> None:
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "job-config"}}
    world.create(config_map)
    job = world.submit(mpi())
    event = world.told("ErrResourceExists", "MPIJob/job")
    assert event.type == "Warning"
    # The kind is always missing.
    wanted = 'Resource "job-config" of Kind "" already exists and is not managed by MPIJob'
    assert event.message == wanted
    assert job.status == {}
    assert job.pods() == []


def test_mpi_jobs_are_served_as_v2beta1_only(world: World) -> None:
    assert world.api.serves("kubeflow.org/v2beta1", "MPIJob")
    assert not world.api.serves("kubeflow.org/v1", "MPIJob")
    assert world.api.serves("kubeflow.org/v1", "PyTorchJob")
