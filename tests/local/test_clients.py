"""The official Python clients, synchronous and asynchronous, on the embedded cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import kubernetes  # type: ignore[import-untyped]
import kubernetes_asyncio
import pytest

from tests.cluster.jobs import pytorch_job, replica, shell
from tests.cluster.world import World
from tests.control_plane.api import Manifest

# Their type hints ask for model objects where dicts work, too.
_asyncio: Any = kubernetes_asyncio
_JOBS = {"group": "kubeflow.org", "version": "v1", "plural": "pytorchjobs"}
_SECONDS = 30


def _job(script: str = "echo hi", **spec: Any) -> Manifest:
    return pytorch_job({"Master": replica("pytorch", script)}, **spec)


def _pod(script: str) -> Manifest:
    main = {"name": "main", "image": "x", "command": shell(script)}
    spec = {"containers": [main], "restartPolicy": "Never", "terminationGracePeriodSeconds": 1}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}


def _is(condition: str, job: Manifest) -> bool:
    conditions = job.get("status", {}).get("conditions") or []
    return (condition, "True") in [(each["type"], each["status"]) for each in conditions]


# ----- kubernetes


@pytest.fixture
def client(world: World) -> Iterator[Any]:
    with kubernetes.config.new_client_from_config(str(world.target.kubeconfig)) as client:
        yield client


def test_the_client_runs_a_job_from_its_creation_to_its_deletion(client: Any, world: World) -> None:
    jobs = kubernetes.client.CustomObjectsApi(client)
    place = {**_JOBS, "namespace": world.namespace}
    created = jobs.create_namespaced_custom_object(body=_job(), **place)
    watch = kubernetes.watch.Watch()
    follow = jobs.list_namespaced_custom_object
    version = created["metadata"]["resourceVersion"]
    for event in watch.stream(follow, **place, resource_version=version, timeout_seconds=_SECONDS):
        if _is("Succeeded", event["object"]):
            watch.stop()
    found = jobs.get_namespaced_custom_object(name="job", **place)
    assert _is("Succeeded", found)
    jobs.patch_namespaced_custom_object(
        name="job", body={"metadata": {"labels": {"a": "b"}}}, **place
    )
    listed = jobs.list_namespaced_custom_object(label_selector="a=b", **place)
    assert [each["metadata"]["name"] for each in listed["items"]] == ["job"]
    core = kubernetes.client.CoreV1Api(client)
    # Decoded by hand: some versions of this client do it wrongly.
    log = core.read_namespaced_pod_log("job-master-0", world.namespace, _preload_content=False)
    assert log.data == b"hi\n"
    options = kubernetes.client.V1DeleteOptions(propagation_policy="Foreground")
    jobs.delete_namespaced_custom_object(name="job", body=options, **place)
    with pytest.raises(kubernetes.client.ApiException) as refused:
        jobs.get_namespaced_custom_object(name="job", **place)
    assert refused.value.status == 404
    assert core.list_namespaced_pod(world.namespace).items == []


def test_the_client_follows_a_log(client: Any, world: World) -> None:
    core = kubernetes.client.CoreV1Api(client)
    core.create_namespaced_pod(world.namespace, _pod("for i in 1 2 3; do echo $i; sleep 0.3; done"))
    watch = kubernetes.watch.Watch()
    for event in watch.stream(core.list_namespaced_pod, world.namespace, timeout_seconds=_SECONDS):
        if event["object"].status.phase != "Pending":
            watch.stop()
    lines = kubernetes.watch.Watch().stream(core.read_namespaced_pod_log, "p", world.namespace)
    assert [*lines] == ["1", "2", "3"]


def test_the_client_finds_the_secret_that_it_made(client: Any, world: World) -> None:
    core = kubernetes.client.CoreV1Api(client)
    metadata = kubernetes.client.V1ObjectMeta(generate_name="s-")
    secret = kubernetes.client.V1Secret(metadata=metadata, string_data={"a": "x"})
    name = core.create_namespaced_secret(world.namespace, secret).metadata.name
    assert core.read_namespaced_secret(name, world.namespace).data == {"a": "eA=="}
    patch = [{"op": "add", "path": "/data/b", "value": "eQ=="}]
    patched = core.patch_namespaced_secret(name, world.namespace, patch)
    assert patched.data == {"a": "eA==", "b": "eQ=="}
    core.delete_collection_namespaced_secret(world.namespace)
    assert core.list_namespaced_secret(world.namespace).items == []


def test_the_client_pages_through_a_list(client: Any, world: World) -> None:
    core = kubernetes.client.CoreV1Api(client)
    for number in range(5):
        metadata = {"name": f"c{number}"}
        core.create_namespaced_config_map(world.namespace, {"metadata": metadata})
    names, token = [], None
    while token != "":
        page = core.list_namespaced_config_map(world.namespace, limit=2, _continue=token)
        names += [each.metadata.name for each in page.items]
        token = page.metadata._continue or ""
    assert names == ["c0", "c1", "c2", "c3", "c4"]


def test_the_client_may_do_what_it_asks_for(client: Any) -> None:
    attributes = {"verb": "create", "resource": "pytorchjobs", "group": "kubeflow.org"}
    review = kubernetes.client.V1SelfSubjectAccessReview(spec={"resourceAttributes": attributes})
    api = kubernetes.client.AuthorizationV1Api(client)
    assert api.create_self_subject_access_review(review).status.allowed


# ----- kubernetes_asyncio


def _run(world: World, work: Callable[[Any], Awaitable[None]]) -> None:
    async def run() -> None:
        config = str(world.target.kubeconfig)
        async with await _asyncio.config.new_client_from_config(config) as client:
            await work(client)

    asyncio.run(asyncio.wait_for(run(), 2 * _SECONDS))


def test_the_asynchronous_client_runs_a_job_from_its_creation_to_its_deletion(
    world: World,
) -> None:
    async def work(client: Any) -> None:
        jobs = _asyncio.client.CustomObjectsApi(client)
        core = _asyncio.client.CoreV1Api(client)
        place = {**_JOBS, "namespace": world.namespace}
        created = await jobs.create_namespaced_custom_object(body=_job(), **place)
        assert created["metadata"]["generation"] == 1
        async with _asyncio.watch.Watch() as watch:
            async for event in watch.stream(
                jobs.list_namespaced_custom_object,
                **place,
                resource_version=created["metadata"]["resourceVersion"],
                timeout_seconds=_SECONDS,
            ):
                if _is("Succeeded", event["object"]):
                    break
        body = {"metadata": {"labels": {"a": "b"}}}
        await jobs.patch_namespaced_custom_object(
            name="job", body=body, _content_type="application/merge-patch+json", **place
        )
        listed = await jobs.list_namespaced_custom_object(label_selector="a=b", **place)
        assert [each["metadata"]["name"] for each in listed["items"]] == ["job"]
        assert await core.read_namespaced_pod_log("job-master-0", world.namespace) == "hi\n"
        uid = created["metadata"]["uid"]
        await jobs.delete_namespaced_custom_object(
            name="job", body={"preconditions": {"uid": uid}}, **place
        )
        with pytest.raises(_asyncio.client.ApiException) as refused:
            await jobs.get_namespaced_custom_object(name="job", **place)
        assert refused.value.status == 404

    _run(world, work)


def test_the_asynchronous_client_follows_a_log(world: World) -> None:
    async def work(client: Any) -> None:
        core = _asyncio.client.CoreV1Api(client)
        script = "for i in 1 2 3; do echo $i; sleep 0.3; done"
        await core.create_namespaced_pod(world.namespace, _pod(script))
        async with _asyncio.watch.Watch() as watch:
            follow = core.list_namespaced_pod
            async for event in watch.stream(follow, world.namespace, timeout_seconds=_SECONDS):
                if event["object"].status.phase != "Pending":
                    break
        async with _asyncio.watch.Watch() as watch:
            follow = core.read_namespaced_pod_log
            lines = [line async for line in watch.stream(follow, "p", world.namespace)]
        assert [line.strip() for line in lines] == ["1", "2", "3"]

    _run(world, work)


def test_the_asynchronous_client_is_told_of_a_conflict(world: World) -> None:
    async def work(client: Any) -> None:
        core = _asyncio.client.CoreV1Api(client)
        body = {"metadata": {"name": "c"}}
        made = await core.create_namespaced_config_map(world.namespace, body)
        made.data = {"a": "1"}
        await core.replace_namespaced_config_map("c", world.namespace, made)
        with pytest.raises(_asyncio.client.ApiException) as refused:
            await core.replace_namespaced_config_map("c", world.namespace, made)
        assert refused.value.status == 409

    _run(world, work)
