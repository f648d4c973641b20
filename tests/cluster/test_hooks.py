"""Hooks: every verb"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from airflow_kftrain.errors import (
    Conflict,
    InvalidSpec,
    NotFound,
    NotServed,
    Refused,
)
from airflow_kftrain.hooks.training_job import TrainingJobHook
from airflow_kftrain.hooks.training_job_async import AsyncTrainingJobHook
from airflow_kftrain.kinds import BATCH_JOB, PYTORCH_JOB, TRAIN_JOB
from tests.cluster.hooks import CONNECTION, Looped, meanwhile, set_connection, with_owner
from tests.cluster.jobs import pytorch_job, replica
from tests.cluster.objects import HOLD, NO_UID, still_job
from tests.cluster.world import World, eventually
from tests.control_plane.api import Manifest

SELECTED = "for=test"


@pytest.fixture(autouse=True)
def connection(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    set_connection(
        monkeypatch, kube_config_path=str(world.target.kubeconfig), namespace=world.namespace
    )


@pytest.fixture
def hook() -> Iterator[Any]:
    with Looped(CONNECTION) as looped:
        yield looped


def still(world: World, name: str = "job", owner: str = "me", **metadata: Any) -> Manifest:
    return with_owner(still_job(name, **metadata), world.namespace, owner)


def settled(hook: Any, world: World, name: str = "job") -> Manifest:
    """The job, when its operator has reported everything about a suspended one."""

    def look() -> Manifest | None:
        found: Manifest = hook.get(PYTORCH_JOB, world.namespace, name)
        return found if len(found.get("status", {}).get("conditions") or []) == 2 else None

    return eventually(look)


def running(world: World, script: str) -> Manifest:
    return with_owner(pytorch_job({"Master": replica("pytorch", script)}), world.namespace)


def test_a_job_is_submitted_once_however_often_that_is_asked(hook: Any, world: World) -> None:
    first = hook.submit(PYTORCH_JOB, still(world))
    second = hook.submit(PYTORCH_JOB, still(world))
    assert first["metadata"]["uid"] == second["metadata"]["uid"]
    assert hook.get(PYTORCH_JOB, world.namespace, "job")["metadata"]["name"] == "job"


def test_a_job_of_another_owner_is_left_alone(hook: Any, world: World) -> None:
    first = hook.submit(PYTORCH_JOB, still(world))
    with pytest.raises(Conflict, match=r"it belongs to another try \(me\)\. Choose another name"):
        hook.submit(PYTORCH_JOB, still(world, owner="you"))
    found = hook.get(PYTORCH_JOB, world.namespace, "job")
    assert found["metadata"]["uid"] == first["metadata"]["uid"]


def test_a_job_waits_for_the_end_of_one_that_is_being_deleted(hook: Any, world: World) -> None:
    first = hook.submit(PYTORCH_JOB, still(world, finalizers=[HOLD]))
    assert hook.delete(PYTORCH_JOB, world.namespace, "job", uid=first["metadata"]["uid"])

    def let_go() -> None:
        time.sleep(1)
        path = world.path("PyTorchJob", "job", "kubeflow.org/v1")
        patch = {"metadata": {"finalizers": None}}
        world.api.call("PATCH", path, patch, content_type="application/merge-patch+json")

    release = meanwhile(let_go)
    second = hook.submit(PYTORCH_JOB, still(world))
    release.join()
    assert first["metadata"]["uid"] != second["metadata"]["uid"]


def test_what_is_not_there_is_nothing(hook: Any, world: World) -> None:
    assert hook.get(PYTORCH_JOB, world.namespace, "job") is None
    assert hook.get(PYTORCH_JOB, "nowhere", "job") is None
    assert list(hook.list(PYTORCH_JOB, world.namespace)) == []
    assert hook.pods(PYTORCH_JOB, world.namespace, "job") == []
    assert hook.events(world.namespace, ["job", NO_UID]) == []
    assert hook.delete(PYTORCH_JOB, world.namespace, "job", uid=NO_UID) is False


def test_a_missing_namespace_is_named(hook: Any, world: World) -> None:
    with pytest.raises(NotFound, match=r'namespaces "nowhere" not found\. Create the namespace'):
        hook.submit(PYTORCH_JOB, with_owner(still_job(), "nowhere"))


def test_a_kind_that_is_not_served_names_its_operator(hook: Any, world: World) -> None:
    # A version that nobody has: both targets serve all kinds of the table.
    kind = TRAIN_JOB._replace(version="v0")
    for ask in (
        lambda: hook.get(kind, world.namespace, "job"),
        lambda: list(hook.list(kind, world.namespace)),
        lambda: hook.submit(kind, with_owner(still_job(), world.namespace)),
    ):
        with pytest.raises(NotServed, match=r"v0\)\. Install Kubeflow Trainer, in a version"):
            ask()


def test_an_unknown_field_is_refused_by_its_name(hook: Any, world: World) -> None:
    job = still(world)
    job["spec"]["runPolices"] = {}
    with pytest.raises(Refused, match=r'unknown field "spec\.runPolices"\. Correct this field'):
        hook.submit(PYTORCH_JOB, job)


def test_a_wrong_value_is_refused_with_its_path(hook: Any, world: World) -> None:
    job = still(world)
    job["spec"]["runPolicy"]["backoffLimit"] = "many"
    with pytest.raises(Refused, match=r"spec\.runPolicy\.backoffLimit.*Correct this field"):
        hook.submit(PYTORCH_JOB, job)


def test_what_a_webhook_refuses_is_no_missing_right(hook: Any, world: World) -> None:
    job = still(world)
    job["spec"]["pytorchReplicaSpecs"]["Master"]["replicas"] = 2
    with pytest.raises(Refused, match=r"denied the request: .*replicas.*A rule of the cluster"):
        hook.submit(PYTORCH_JOB, job)


def test_a_manifest_that_is_too_large_is_refused(hook: Any, world: World) -> None:
    job = still(world)
    job["metadata"]["annotations"]["x"] = "x" * (4 << 20)
    with pytest.raises(Refused):
        hook.submit(PYTORCH_JOB, job)


def test_a_list_comes_in_pages_and_is_selected_by_labels(hook: Any, world: World) -> None:
    for number in range(60):  # more than the first page holds
        world.create(with_owner(still_job(f"job-{number:02}"), world.namespace))
    other = still_job("other")
    world.create(other)
    names = [item["metadata"]["name"] for item in hook.list(PYTORCH_JOB, world.namespace, SELECTED)]
    assert sorted(names) == [f"job-{number:02}" for number in range(60)]
    assert len(list(hook.list(PYTORCH_JOB, world.namespace))) == 61


def test_a_patch_merges(hook: Any, world: World) -> None:
    hook.submit(PYTORCH_JOB, still(world))
    patch = {"metadata": {"annotations": {"airflow-kftrain/owner": "you"}, "labels": {"for": None}}}
    patched = hook.patch(PYTORCH_JOB, world.namespace, "job", patch)
    assert patched["metadata"]["annotations"]["airflow-kftrain/owner"] == "you"
    assert "labels" not in patched["metadata"]


def test_a_patch_of_an_old_version_is_a_conflict(hook: Any, world: World) -> None:
    hook.submit(PYTORCH_JOB, still(world))
    version = settled(hook, world)["metadata"]["resourceVersion"]
    note = {"metadata": {"annotations": {"a": "b"}, "resourceVersion": version}}
    hook.patch(PYTORCH_JOB, world.namespace, "job", note)
    with pytest.raises(Conflict, match="the object has been modified"):
        hook.patch(PYTORCH_JOB, world.namespace, "job", {**note, "metadata": {**note["metadata"]}})


def test_a_patch_of_nothing_is_not_found(hook: Any, world: World) -> None:
    with pytest.raises(NotFound, match='"job" not found'):
        hook.patch(PYTORCH_JOB, world.namespace, "job", {"metadata": {}})


def test_a_delete_is_of_one_job_in_one_version(hook: Any, world: World) -> None:
    place = (PYTORCH_JOB, world.namespace, "job")
    hook.submit(PYTORCH_JOB, still(world))
    metadata = settled(hook, world)["metadata"]
    assert hook.delete(*place, uid=NO_UID) is False
    with pytest.raises(Conflict):
        hook.delete(*place, uid=metadata["uid"], resource_version="1")
    assert hook.get(*place) is not None
    version = metadata["resourceVersion"]
    assert hook.delete(*place, uid=metadata["uid"], resource_version=version) is True
    assert hook.get(*place) is None
    assert hook.delete(*place, uid=metadata["uid"]) is False


def test_a_delete_in_the_foreground_waits_for_the_pods(hook: Any, world: World) -> None:
    place = (PYTORCH_JOB, world.namespace, "job")
    created = hook.submit(PYTORCH_JOB, running(world, "trap '' TERM; while :; do sleep 0.1; done"))
    eventually(lambda: "Running" in [pod["status"]["phase"] for pod in hook.pods(*place)])
    assert hook.delete(*place, uid=created["metadata"]["uid"], foreground=True)
    assert hook.get(*place)["metadata"]["deletionTimestamp"]
    eventually(lambda: hook.get(*place) is None)
    assert hook.pods(*place) == []


def test_pods_are_those_of_the_job(hook: Any, world: World) -> None:
    job = pytorch_job({"Master": replica("pytorch"), "Worker": replica("pytorch", count=2)})
    hook.submit(PYTORCH_JOB, with_owner(job, world.namespace))
    world.pod("other", "true")
    eventually(lambda: len(hook.pods(PYTORCH_JOB, world.namespace, "job")) == 3)
    names = {pod["metadata"]["name"] for pod in hook.pods(PYTORCH_JOB, world.namespace, "job")}
    assert names == {"job-master-0", "job-worker-0", "job-worker-1"}


def test_a_log_is_read_whole_or_its_beginning_or_its_end(hook: Any, world: World) -> None:
    world.pod("p", "sh", "-c", "for n in 1 2 3 4 5 6; do echo line $n; done").ends()
    place = (world.namespace, "p", "main")
    assert hook.log(*place) == "".join(f"line {n}\n" for n in range(1, 7))
    assert hook.log(*place, tail_lines=2) == "line 5\nline 6\n"
    assert hook.log(*place, limit_bytes=9) == "line 1\nli"
    assert hook.log(*place, tail_lines=3, limit_bytes=9) == "5\nline 6\n"
    assert hook.log(*place, since=datetime.now(timezone.utc) + timedelta(hours=1)) == ""
    stamped = hook.log(*place, tail_lines=1, timestamps=True)
    assert stamped[:4] == f"{datetime.now(timezone.utc).year}"
    assert stamped.endswith("Z line 6\n")


def test_a_log_may_be_of_the_container_before(hook: Any, world: World) -> None:
    script = "test -e /cache/x && exec sleep 60; touch /cache/x; echo first; exit 1"
    volume = {"name": "cache", "emptyDir": {}}
    mount = {"name": "cache", "mountPath": "/cache"}
    pod = world.pod(
        "p",
        *["sh", "-c", script],
        restartPolicy="OnFailure",
        volumes=[volume],
        container={"volumeMounts": [mount]},
    )
    pod.until(_runs_again)
    assert hook.log(world.namespace, "p", "main") == ""
    assert hook.log(world.namespace, "p", "main", previous=True) == "first\n"


def _runs_again(pod: Manifest) -> bool:
    statuses = pod["status"].get("containerStatuses") or []
    return any(each["restartCount"] and "running" in each["state"] for each in statuses)


def test_a_log_that_is_not_there_is_an_error_of_ours(hook: Any, world: World) -> None:
    with pytest.raises(NotFound, match=f'read the log of pod {world.namespace}/p: pods "p" not'):
        hook.log(world.namespace, "p", "main")
    world.pod("p", "true").ends()
    with pytest.raises(Refused, match="container other is not valid for pod p"):
        hook.log(world.namespace, "p", "other")
    with pytest.raises(InvalidSpec):
        hook.log(world.namespace, "..", "main")


def test_a_log_is_followed_to_its_end(hook: Any, world: World) -> None:
    world.pod("p", "sh", "-c", "for n in 1 2 3; do echo $n; sleep 0.5; done; printf end").phase(
        "Running", "Succeeded"
    )
    assert list(hook.follow_log(world.namespace, "p", "main")) == ["1", "2", "3", "end"]
    assert list(hook.follow_log(world.namespace, "p", "main")) == ["1", "2", "3", "end"]
    with pytest.raises(NotFound):
        list(hook.follow_log(world.namespace, "none", "main"))


def test_following_a_log_may_be_left(hook: Any, world: World) -> None:
    world.pod("p", "sh", "-c", "echo 1; exec sleep 60").phase("Running")
    with contextlib.closing(hook.follow_log(world.namespace, "p", "main")) as lines:
        assert next(lines) == "1"
    assert hook.get(PYTORCH_JOB, world.namespace, "job") is None


def test_events_are_found_by_name_and_by_uid(hook: Any, world: World) -> None:
    created = hook.submit(PYTORCH_JOB, running(world, "true"))
    eventually(lambda: hook.events(world.namespace, ["job"]))
    by_name = hook.events(world.namespace, ["job"])
    assert {event["involvedObject"]["kind"] for event in by_name} == {"PyTorchJob"}
    eventually(lambda: hook.events(world.namespace, ["job-master-0"]))
    both = hook.events(world.namespace, [created["metadata"]["uid"], "job-master-0"])
    assert {event["involvedObject"]["kind"] for event in both} == {"PyTorchJob", "Pod"}


def test_the_version_of_mpi_jobs_is_that_which_is_served(world: World) -> None:
    """The embedded cluster serves v2beta1, this real control plane v1."""
    version = TrainingJobHook(CONNECTION).mpi_version()
    assert world.api.serves(f"kubeflow.org/{version}", "MPIJob")


def test_code_that_blocks_says_the_same(world: World) -> None:
    hook, place = TrainingJobHook(CONNECTION), (PYTORCH_JOB, world.namespace)
    created = hook.submit(PYTORCH_JOB, running(world, "sleep 60"))
    assert (hook.namespace(), hook.leads_elsewhere(hook.cluster())) == (world.namespace, "")
    assert [job["metadata"]["name"] for job in hook.list(*place, SELECTED)] == ["job"]
    assert eventually(lambda: hook.pods(*place, "job"))
    patched = hook.patch(*place, "job", {"metadata": {"labels": {"more": "1"}}})
    assert patched["metadata"]["labels"] == {"for": "test", "more": "1"}
    assert hook.delete(*place, "job", uid=created["metadata"]["uid"], foreground=True)
    eventually(lambda: hook.get(*place, "job") is None)


def test_namespaces_come_from_the_connection(hook: Any, world: World) -> None:
    assert hook.namespace() == world.namespace


def _watched(hook: Any, world: World, work: Any, count: int) -> list[tuple[str, Manifest]]:
    version, items = hook.snapshot(PYTORCH_JOB, world.namespace, SELECTED)
    hook.run(items.aclose())
    thread = meanwhile(work)
    seen = []
    with contextlib.closing(
        hook.watch(PYTORCH_JOB, world.namespace, SELECTED, version, 30)
    ) as events:
        for event in events:
            if event[0] != "BOOKMARK":
                seen.append(event)
            if len(seen) == count:
                break
    thread.join()
    return seen


def test_a_watch_tells_what_happens_after_a_snapshot(hook: Looped, world: World) -> None:
    def work() -> None:
        blocking = TrainingJobHook(CONNECTION)
        blocking.submit(PYTORCH_JOB, still(world, finalizers=[HOLD]))
        metadata = settled(blocking, world)["metadata"]
        blocking.delete(PYTORCH_JOB, world.namespace, "job", uid=metadata["uid"])
        blocking.patch(PYTORCH_JOB, world.namespace, "job", {"metadata": {"finalizers": None}})

    world.create(still_job("other"))
    seen = _watched(hook, world, work, 5)
    kinds = [kind for kind, _ in seen]
    assert (kinds[0], kinds[-1]) == ("ADDED", "DELETED")
    assert set(kinds[1:-1]) == {"MODIFIED"}
    assert {found["metadata"]["name"] for _, found in seen} == {"job"}


def test_a_snapshot_has_all_pages_at_one_version(hook: Looped, world: World) -> None:
    for number in range(55):
        world.create(with_owner(still_job(f"job-{number:02}"), world.namespace))
    version, items = hook.snapshot(PYTORCH_JOB, world.namespace, SELECTED)
    assert int(version) > 0
    world.create(with_owner(still_job("late"), world.namespace))

    async def all_of_them() -> list[str]:
        return [item["metadata"]["name"] async for item in items]

    assert len(hook.run(all_of_them())) == 55
    one = hook.snapshot(PYTORCH_JOB, world.namespace, "", "metadata.name=job-07")[1]

    async def names() -> list[str]:
        return [item["metadata"]["name"] async for item in one]

    assert hook.run(names()) == ["job-07"]


def test_a_watch_ends_when_its_time_is_over(hook: Looped, world: World) -> None:
    version, items = hook.snapshot(BATCH_JOB, world.namespace)
    hook.run(items.aclose())
    began = time.monotonic()
    events = list(hook.watch(BATCH_JOB, world.namespace, "", version, 1))
    assert {kind for kind, _ in events} <= {"BOOKMARK"}
    assert 0.5 < time.monotonic() - began < 60


def test_pods_in_trouble_are_watched_by_their_phase(hook: Looped, world: World) -> None:
    healthy = "status.phase!=Running,status.phase!=Succeeded"
    version, items = hook.snapshot("pods", world.namespace, "", healthy)
    hook.run(items.aclose())
    thread = meanwhile(lambda: world.pod("p", "sh", "-c", "sleep 0.5; exit 3").ends())
    seen = []
    with contextlib.closing(hook.watch_pods(world.namespace, "", healthy, version, 30)) as events:
        for kind, pod in events:
            seen.append((kind, pod["status"]["phase"]))
            if seen[-1] == ("ADDED", "Failed"):
                break
    thread.join()
    assert seen[0] == ("ADDED", "Pending")
    assert "DELETED" in [kind for kind, _ in seen]


def test_a_watch_of_what_is_not_served_says_so(hook: Looped, world: World) -> None:
    kind = TRAIN_JOB._replace(version="v0")
    with pytest.raises(NotServed, match="Install Kubeflow Trainer"):
        next(hook.watch(kind, world.namespace, "", "0", 5))
    with pytest.raises(NotServed, match="Install Kubeflow Trainer"):
        hook.snapshot(kind, world.namespace)


def test_many_triggers_of_a_loop_share_one_client_and_close_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it were left open, its warning would be an error here."""
    from airflow.providers.cncf.kubernetes.hooks.kubernetes import AsyncKubernetesHook

    made: list[object] = []
    connect = AsyncKubernetesHook.get_conn

    def counted(hook: Any) -> Any:
        made.append(hook)
        return connect(hook)

    monkeypatch.setattr(AsyncKubernetesHook, "get_conn", counted)

    async def work() -> None:
        hooks = [AsyncTrainingJobHook(CONNECTION) for _ in range(20)]
        await asyncio.gather(*[hook.get(PYTORCH_JOB, world.namespace, "job") for hook in hooks])

    asyncio.run(work())
    assert len(made) == 1
    asyncio.run(work())
    assert len(made) == 2
