"""Kueue"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from airflow_kftrain import Owner, Resources, TrainJob, build_manifest
from airflow_kftrain.__main__ import main
from airflow_kftrain.hooks import permissions
from airflow_kftrain.hooks.permissions import Permission
from airflow_kftrain.messages import Outcome
from airflow_kftrain.monitoring.decisions import Verdict
from airflow_kftrain.watching import queues
from tests.cluster.hooks import CONNECTION, Looped, be_user, without
from tests.cluster.jobs import pytorch_job, replica, train_job
from tests.cluster.targets import Target
from tests.cluster.watched import INSTANCE, OWNER, Told, order_for, ours, until, watched
from tests.cluster.world import WORKLOAD, Job, World, eventually
from tests.control_plane import KUEUE
from tests.control_plane.api import MERGE, Manifest

pytestmark = [
    pytest.mark.profile(KUEUE),
    pytest.mark.real_only("the embedded cluster has no Kueue"),
    pytest.mark.usefixtures("connection"),
]

_API = WORKLOAD[0]
_QUEUE = "kueue.x-k8s.io/queue-name"
_PRIORITY = "kueue.x-k8s.io/priority-class"
_LONG = "sleep 600"
_CPU = {"requests": {"cpu": "1"}}


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shortens the pauses between looks."""
    monkeypatch.setattr(queues, "FIRST_LOOK_SECONDS", 0.5)
    monkeypatch.setattr(queues, "LOOK_SECONDS", (0.5, 0.5))


def pytorch(script: str, **resources: Any) -> Manifest:
    return pytorch_job({"Master": replica("pytorch", script, resources=resources or _CPU)})


def batch(script: str, **resources: Any) -> Manifest:
    pod = replica("main", script, resources=resources or _CPU)["template"]
    pod["spec"]["restartPolicy"] = "Never"
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "job"},
        "spec": {"backoffLimit": 0, "template": pod},
    }


def train(script: str, **resources: Any) -> Manifest:
    return train_job(script, trainer={"image": "x", "resourcesPerNode": resources or _CPU})


Make = Callable[..., Manifest]

of_each_kind = pytest.mark.parametrize(
    "make", [pytorch, batch, train], ids=["PyTorchJob", "Job", "TrainJob"]
)


class Lane:
    """The queue `gpu`, with a quota of one CPU. Its ClusterQueue belongs to this scenario alone."""

    def __init__(self, world: World) -> None:
        self._name = world.namespace
        self.api = world.api
        # A recording contains everything in the namespace of its job.
        self._others = World(world.target, f"{self._name}-others")
        metadata = {"name": self._others.namespace}
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        flavor = self._cluster("ResourceFlavor")
        resources = [{"name": "cpu", "nominalQuota": 1}]
        covered = {"coveredResources": ["cpu"]}
        spec = {
            "namespaceSelector": {},
            "preemption": {"withinClusterQueue": "LowerPriority"},
            "resourceGroups": [
                {**covered, "flavors": [{"name": self._name, "resources": resources}]}
            ],
        }
        queue = self._cluster("ClusterQueue", spec=spec)
        urgent = self._cluster("WorkloadPriorityClass", value=100)
        self.made = [namespace, queue, urgent, flavor]
        for each in reversed(self.made):
            self.api.create(each).required(each["kind"])
        for each in (world, self._others):
            each.create(self.local("gpu"))

    @property
    def urgent(self) -> str:
        """The only priority class, above the default."""
        return self._name

    def local(self, name: str) -> Manifest:
        """A LocalQueue."""
        spec = {"clusterQueue": self._name}
        return {"apiVersion": _API, "kind": "LocalQueue", "metadata": {"name": name}, "spec": spec}

    def occupied(self, script: str = _LONG, priority: str = "") -> Job:
        """Another job that uses up the quota, as soon as it runs."""
        other = self._others.start(in_queue(pytorch(script), priority=priority))
        eventually(lambda: other.is_true("Running") or other.is_true("Succeeded"), other.now)
        return other

    def _cluster(self, kind: str, **fields: Any) -> Manifest:
        return {"apiVersion": _API, "kind": kind, "metadata": {"name": self._name}, **fields}

    def stop(self, policy: str) -> None:
        path = self.api.path(_API, "ClusterQueue", None, self._name)
        patch = {"spec": {"stopPolicy": policy}}
        self.api.call("PATCH", path, patch, content_type=MERGE).required("a patch")


@pytest.fixture(autouse=True)
def left_behind(target: Target) -> Iterator[list[Manifest]]:
    """What is deleted after the scenario: after `world`, which still records."""
    found: list[Manifest] = []
    yield found
    for each in found:
        target.api.delete(each)


@pytest.fixture
def lane(world: World, left_behind: list[Manifest]) -> Lane:
    lane = Lane(world)
    left_behind += lane.made
    return lane


def in_queue(
    manifest: Manifest, name: str = "", queue: str = "gpu", priority: str = ""
) -> Manifest:
    labels = {_QUEUE: queue, **({_PRIORITY: priority} if priority else {})}
    manifest = ours(manifest, labels)
    if name:
        manifest["metadata"]["name"] = name
    return manifest


def submit(world: World, manifest: Manifest, **labels: str) -> Job:
    """The job that is recorded."""
    return world.submit(in_queue(manifest, **labels))


def workload(world: World) -> Manifest:
    """The Workload of the job, once it exists."""

    return eventually(lambda: next(iter(world.listed("Workload", _API)), None))


def _owner(found: Manifest) -> str:
    return str(found["metadata"]["ownerReferences"][0]["name"])


def set_active(world: World, *, active: bool) -> None:
    path = world.path("Workload", workload(world)["metadata"]["name"], _API)
    patch = {"spec": {"active": active}}
    world.api.call("PATCH", path, patch, content_type=MERGE).required("a patch")


def watch(world: World, job: Job, *steps: Callable[[], object] | str) -> tuple[Outcome, Told]:
    """Watches the job until it ends. Each step is a line that it waits for, or something that is
    done then."""
    told = Told()

    async def play() -> Outcome:
        async with watched(told, order_for(world, job)) as task:
            for step in steps:
                if isinstance(step, str):
                    await until(partial(told.about, step))
                else:
                    await asyncio.to_thread(step)
            return await asyncio.wait_for(task, 90)

    try:
        return asyncio.run(play()), told
    except TimeoutError:
        raise AssertionError(f"told: {told.lines}; seen: {job.now()}") from None


# ----- waiting, admitted, evicted


@of_each_kind
def test_a_job_waits_for_quota_and_starts_when_there_is_some(
    world: World, lane: Lane, make: Make
) -> None:
    other = lane.occupied()
    job = submit(world, make("sleep 1"))
    outcome, told = watch(world, job, "insufficient unused quota", other.delete)
    job.succeeds()
    assert outcome.verdict is Verdict.SUCCEEDED
    kind = job.created["kind"]
    (line,) = told.about("insufficient")
    assert line.startswith(f"The {kind} waits in queue gpu: couldn't assign flavors to pod set ")
    assert line.endswith(
        f": insufficient unused quota for cpu in flavor {world.namespace}, 1 more needed."
    )


@of_each_kind
def test_a_job_is_preempted_and_runs_again(world: World, lane: Lane, make: Make) -> None:
    job = submit(world, make("sleep 8"))

    def preempt() -> None:
        lane.occupied("sleep 4", lane.urgent).succeeds()

    outcome, told = watch(world, job, "Running", preempt)
    job.succeeds()
    assert outcome.verdict is Verdict.SUCCEEDED
    kind = job.created["kind"]
    line, *_ = told.about("evicted")
    assert line.startswith(
        f"Kueue has evicted the {kind} (Preempted: Preempted to accommodate a workload (UID: "
    )
    assert f"The {kind} waits in queue gpu again" in line


@of_each_kind
def test_a_stopped_queue_evicts_its_jobs_until_it_goes_on(
    world: World, lane: Lane, make: Make
) -> None:
    job = submit(world, make("sleep 3"))
    outcome, told = watch(
        world,
        job,
        "Running",
        lambda: lane.stop("HoldAndDrain"),
        "cannot admit",
        lambda: lane.stop("None"),
    )
    job.succeeds()
    assert outcome.verdict is Verdict.SUCCEEDED
    kind = job.created["kind"]
    (line,) = told.about("cannot admit")
    assert line == (
        f"Kueue has evicted the {kind} (ClusterQueueStopped: The ClusterQueue is stopped). Kueue "
        f"cannot admit the {kind}: ClusterQueue {world.namespace} is inactive. It waits until "
        "queue gpu exists and is active; otherwise correct queue_name."
    )


# ----- TrainJobs


def test_a_train_job_that_is_built_for_a_queue_runs(world: World, lane: Lane) -> None:
    spec = TrainJob(
        runtime="torch-distributed",
        image="x",
        command=["true"],
        container_resources=Resources(cpu=1),
        queue_name="gpu",
    )
    owner = Owner(INSTANCE, "dag", "task", "run", OWNER)
    job = world.start(build_manifest(spec, owner=owner, namespace=world.namespace, grace=2))
    outcome, _ = watch(world, job)
    job.succeeds()
    assert outcome.verdict is Verdict.SUCCEEDED


def test_kueue_drops_the_patches_of_a_train_job_which_then_does_not_start(
    world: World, lane: Lane
) -> None:
    """The reason why a queued TrainJob is built without them."""
    label = {"metadata": {"labels": {"team": "a"}}}
    steps = [{"name": "node", "template": {"spec": {"template": label}}}]
    changed = {"template": {"spec": {"replicatedJobs": steps}}}
    manifest = in_queue(train("true"))
    manifest["spec"]["runtimePatches"] = [
        {"manager": "example.com/team", "trainingRuntimeSpec": changed}
    ]
    job = world.start(manifest)
    assert job.created["spec"]["runtimePatches"]
    job.until(lambda now: now["spec"]["suspend"] is False)
    assert "runtimePatches" not in job.now()["spec"]
    failed = world.told("TrainJobResourcesCreationFailed", "TrainJob/job")
    assert "template.metadata in body must be of type object" in failed.message
    (job_set,) = world.listed("JobSet", "jobset.x-k8s.io/v1alpha2")
    assert job_set["spec"]["suspend"] is True


# ----- waiting in vain


def test_a_job_of_a_queue_that_does_not_exist_waits_until_it_does(world: World, lane: Lane) -> None:
    job = submit(world, pytorch("true"), queue="tpu")
    outcome, told = watch(world, job, "cannot admit", lambda: world.create(lane.local("tpu")))
    job.succeeds()
    assert outcome.verdict is Verdict.SUCCEEDED
    (line,) = told.about("cannot admit")
    assert line == (
        "Kueue cannot admit the PyTorchJob: LocalQueue tpu doesn't exist. It waits until queue tpu "
        "exists and is active; otherwise correct queue_name."
    )


@of_each_kind
def test_a_job_that_requests_more_than_the_quota_waits_for_ever(
    world: World, lane: Lane, make: Make
) -> None:
    job = submit(world, make("true", requests={"cpu": "2"}))
    outcome, told = watch(world, job, "insufficient quota", job.delete)
    assert outcome.reason == "Gone"
    (line,) = told.about("insufficient quota")
    assert line.endswith("Waiting does not help: request less, or choose another queue.")


@of_each_kind
def test_a_job_with_an_unknown_priority_class_has_no_workload(
    world: World, lane: Lane, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "ABSENT_SECONDS", 3.0)
    job = submit(world, make("true"), priority="nobody")
    outcome, told = watch(world, job, "has not created", job.delete)
    assert outcome.reason == "Gone"
    kind = job.created["kind"]
    (line,) = told.about("has not created")
    assert line == (
        f"The {kind} is suspended, and waits for queue gpu, but Kueue has not created a Workload "
        f"for it: it is not running, it does not manage {kind}s, or its priority class nobody does "
        "not exist."
    )
    assert world.listed("Workload", _API) == []


# ----- deactivated


@of_each_kind
def test_a_deactivated_job_ends_the_wait(world: World, lane: Lane, make: Make) -> None:
    job = submit(world, make(_LONG))
    outcome, _ = watch(world, job, "Running", lambda: set_active(world, active=False))
    assert (outcome.verdict, outcome.reason) == (Verdict.FAILED, "Deactivated")
    assert outcome.retryable
    assert outcome.words == (
        f"Kueue no longer tries to run the {job.created['kind']} of queue gpu, since its Workload "
        "was deactivated (Deactivated: The workload is deactivated)."
    )


def test_a_job_that_is_deactivated_before_its_turn_ends_the_wait(world: World, lane: Lane) -> None:
    lane.occupied()
    job = submit(world, pytorch(_LONG))
    outcome, _ = watch(world, job, "insufficient", lambda: set_active(world, active=False))
    assert (outcome.verdict, outcome.reason) == (Verdict.FAILED, "Deactivated")


def test_the_longest_time_that_the_author_allows_kueue_ends_the_wait(
    world: World, lane: Lane
) -> None:
    manifest = in_queue(pytorch(_LONG))
    manifest["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] = "3"
    outcome, _ = watch(world, world.submit(manifest))
    assert outcome.verdict is Verdict.TIMED_OUT
    assert outcome.reason == "DeactivatedDueToMaximumExecutionTimeExceeded"
    assert "exceeding the maximum execution time" in outcome.words


# ----- the calls


@pytest.mark.parametrize("version", ["v1beta2", "v1beta1"])
def test_workloads_are_found_by_the_uids_of_their_jobs(
    world: World, lane: Lane, version: str
) -> None:
    jobs = [world.start(in_queue(pytorch(_LONG), f"job-{number}")) for number in range(3)]
    uids = [job.created["metadata"]["uid"] for job in jobs]
    with Looped(CONNECTION) as hook:
        kind = hook.workload_kind()
        assert kind.version == "v1beta2"

        def look() -> list[Manifest] | None:
            found = hook.workloads(kind._replace(version=version), world.namespace, uids[:2])
            return found if len(found) == 2 else None

        found = eventually(look)
    assert sorted(_owner(each) for each in found) == ["job-0", "job-1"]
    assert {each["apiVersion"] for each in found} <= {f"kueue.x-k8s.io/{version}", None}


(_RIGHT,) = permissions.of_queues()


def _doctor(capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    code = main(["doctor", "--conn-id", CONNECTION])
    lines = capsys.readouterr().out.splitlines()
    return code, [line for line in lines if "Kueue" in line or "workloads" in line]


@pytest.mark.parametrize("missing", [None, _RIGHT], ids=["all", "without"])
def test_the_doctor_knows_what_kueue_needs(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    missing: Permission | None,
) -> None:
    rules = permissions.role_rules() if missing is None else without(missing)
    be_user(world, monkeypatch, tmp_path, rules)
    code, lines = _doctor(capsys)
    assert code == 0
    assert lines == [
        "ok    Kueue is installed: you can use queue_name",
        "ok    allowed: list workloads of kueue.x-k8s.io"
        if missing is None
        else "note  not allowed: list workloads of kueue.x-k8s.io in namespace "
        f"{world.namespace} ({_RIGHT.why}). Add this verb to the Role.",
    ]


def test_without_the_permission_a_queued_job_is_told_less_and_ends_the_same(
    world: World, lane: Lane, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    be_user(world, monkeypatch, tmp_path, without(_RIGHT))
    other = lane.occupied()
    job = submit(world, pytorch("true"))
    outcome, told = watch(world, job, "It is not known for what", other.delete)
    job.succeeds()
    assert outcome.verdict is Verdict.SUCCEEDED
    (line,) = told.about("It is not known for what")
    assert (
        "may not list workloads of kueue.x-k8s.io in namespace "
        f"{world.namespace}. Give this user a Role with the verb list on workloads"
    ) in line
