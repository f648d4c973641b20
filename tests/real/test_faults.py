"""The fault proxy in front of a real API server, with the clients that people use."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import kubernetes
import kubernetes_asyncio
import pytest

from kftrain_local.api_client import (
    ApiClient,
    ApiError,
    ApiUnreachable,
    core,
    read_kubeconfig,
)
from kftrain_local.faults.command import Fault, FaultProxy, running
from tests.control_plane import ControlPlane
from tests.control_plane.launcher import TRAINING_OPERATOR

pytestmark = pytest.mark.parametrize("plane", [TRAINING_OPERATOR], indirect=True)

PATIENCE = 30.0


def in_loop(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), PATIENCE))


def a_config_map(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


class World:
    """One namespace: a client that bypasses the proxy, one that uses it, and what that sees."""

    def __init__(
        self, namespace: str, proxy: FaultProxy, direct: ApiClient, through: ApiClient
    ) -> None:
        self.path = core(namespace, "configmaps")
        self.proxy = proxy
        self.direct = direct
        self.through = through
        self.seen: asyncio.Queue[tuple[str, set[str]]] = asyncio.Queue()

    async def follow(self) -> None:
        async for kind, found in self.through.follow(self.path):
            many = found if kind == "LISTED" else [found]
            self.seen.put_nowait((kind, {each["metadata"]["name"] for each in many}))

    async def create(self, name: str) -> None:
        await self.direct.create(self.path, a_config_map(name))

    async def sees(self, name: str) -> str:
        """Returns when it has seen the object, as LISTED or ADDED."""
        while True:
            kind, names = await self.seen.get()
            if name in names:
                return kind

    async def watches(self) -> None:
        """Returns when a watch is open."""
        await self.create("first")
        assert await self.sees("first") == "ADDED"

    async def names(self) -> set[str]:
        items, _ = await self.direct.list(self.path)
        return {item["metadata"]["name"] for item in items} - {"kube-root-ca.crt"}


@contextlib.asynccontextmanager
async def world(plane: ControlPlane, namespace: str, *faults: Fault) -> AsyncIterator[World]:
    async with (
        FaultProxy(plane.kubeconfig, *faults) as proxy,
        ApiClient(read_kubeconfig(plane.kubeconfig)) as direct,
        ApiClient(read_kubeconfig(proxy.kubeconfig)) as through,
    ):
        world = World(namespace, proxy, direct, through)
        following = asyncio.create_task(world.follow())
        assert (await world.seen.get())[0] == "LISTED"
        try:
            yield world
        finally:
            following.cancel()
            await asyncio.wait({following})


def test_following_survives_watches_that_are_cut(plane: ControlPlane, namespace: str) -> None:
    async def work() -> None:
        async with world(plane, namespace) as w:
            await w.watches()
            for number in range(3):
                assert w.proxy.cut() == 1
                await w.create(f"after-{number}")
                assert await w.sees(f"after-{number}") == "ADDED"
            assert w.proxy.calls["list", "configmaps"] == 1
            assert w.proxy.calls["watch", "configmaps"] == 4

    in_loop(work)


def test_following_survives_an_open_watch_that_expires(plane: ControlPlane, namespace: str) -> None:
    async def work() -> None:
        async with world(plane, namespace) as w:
            await w.watches()
            assert w.proxy.expire() == 1
            assert await w.sees("first") == "LISTED"
            assert w.proxy.calls["list", "configmaps"] == 2
            await w.create("second")
            assert await w.sees("second") == "ADDED"

    in_loop(work)


def test_following_survives_new_watches_that_have_expired(
    plane: ControlPlane, namespace: str
) -> None:
    async def work() -> None:
        expired = Fault(verb="watch", resource="configmaps", code=410, times=2)
        async with world(plane, namespace, expired) as w:
            for _ in range(2):
                assert (await w.seen.get())[0] == "LISTED"
            await w.watches()
            assert (expired.hits, w.proxy.calls["list", "configmaps"]) == (2, 3)

    in_loop(work)


def test_following_goes_on_when_a_frozen_server_thaws(plane: ControlPlane, namespace: str) -> None:
    async def work() -> None:
        async with world(plane, namespace) as w:
            await w.watches()
            w.proxy.freeze()
            await w.create("second")
            asked = asyncio.ensure_future(w.through.get(w.path))
            done, _ = await asyncio.wait({asked}, timeout=0.5)
            assert not done
            assert w.seen.empty()
            w.proxy.thaw()
            assert await w.sees("second") == "ADDED"
            await asked
            assert w.proxy.calls["watch", "configmaps"] == 1

    in_loop(work)


def test_following_survives_a_server_that_is_away_for_a_while(
    plane: ControlPlane, namespace: str
) -> None:
    async def work() -> None:
        async with world(plane, namespace) as w:
            await w.watches()
            w.proxy.away(1)
            with pytest.raises(ApiUnreachable):
                await w.through.get(w.path)
            await w.create("second")
            assert await w.sees("second") == "ADDED"
            await w.through.get(w.path)

    in_loop(work)


def test_half_of_the_creates_are_refused(plane: ControlPlane, namespace: str) -> None:
    async def work() -> None:
        refused = Fault(verb="create", resource="configmaps", share=0.5, code=503)
        async with world(plane, namespace, refused) as w:
            codes = []
            for number in range(10):
                try:
                    await w.through.create(w.path, a_config_map(f"made-{number}"))
                except ApiError as error:
                    codes.append(error.code)
            assert codes == [503] * 5
            assert await w.names() == {f"made-{number}" for number in (1, 3, 5, 7, 9)}

    in_loop(work)


def test_an_answer_is_lost_and_the_object_is_there(plane: ControlPlane, namespace: str) -> None:
    async def work() -> None:
        lost = Fault(verb="create", resource="configmaps", cut=0, times=1)
        async with world(plane, namespace, lost) as w:
            with pytest.raises(ApiUnreachable):
                await w.through.create(w.path, a_config_map("made"))
            with pytest.raises(ApiError) as refused:
                await w.through.create(w.path, a_config_map("made"))
            assert refused.value.reason == "AlreadyExists"

    in_loop(work)


def test_the_synchronous_client_of_python(plane: ControlPlane, namespace: str) -> None:
    made = {**a_config_map("made"), "metadata": {"name": "made", "namespace": namespace}}
    plane.api().create(made).required("a ConfigMap")
    busy = Fault(verb="list", resource="configmaps", code=429, retry_after=3, times=1)
    slow = Fault(verb="get", resource="configmaps", delay=0.5)
    with (
        running(FaultProxy(plane.kubeconfig, busy, slow)) as proxy,
        kubernetes.config.new_client_from_config(str(proxy.kubeconfig)) as client,
    ):
        api = kubernetes.client.CoreV1Api(client)
        # If it is told to try again after so many seconds, this client does.
        started = time.monotonic()
        assert api.list_namespaced_config_map(namespace).items
        assert time.monotonic() - started >= 3
        assert proxy.calls["list", "configmaps"] == 2
        started = time.monotonic()
        api.read_namespaced_config_map("made", namespace)
        assert time.monotonic() - started >= 0.5
        proxy.add(Fault(verb="list", resource="configmaps", code=403))
        with pytest.raises(kubernetes.client.ApiException) as refused:
            api.list_namespaced_config_map(namespace)
        assert (refused.value.status, '"Forbidden"' in refused.value.body) == (403, True)
        watch = kubernetes.watch.Watch()
        proxy.add(Fault(verb="watch", resource="configmaps", code=410))
        with pytest.raises(kubernetes.client.ApiException) as expired:
            list(watch.stream(api.list_namespaced_config_map, namespace, resource_version="1"))
        assert expired.value.status == 410


def test_the_asynchronous_client_of_python(plane: ControlPlane, namespace: str) -> None:
    async def work() -> None:
        async with FaultProxy(plane.kubeconfig) as proxy:
            client = await kubernetes_asyncio.config.new_client_from_config(str(proxy.kubeconfig))
            async with client:
                api = kubernetes_asyncio.client.CoreV1Api(client)
                listed = await api.list_namespaced_config_map(namespace)
                assert listed.kind == "ConfigMapList"
                proxy.add(Fault(code=500))
                with pytest.raises(kubernetes_asyncio.client.ApiException) as refused:
                    await api.list_namespaced_config_map(namespace)
                assert refused.value.status == 500

    in_loop(work)


def test_kubectl(plane: ControlPlane, namespace: str, tmp_path: Path) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed")

    def run(*words: str, text: str = "") -> subprocess.CompletedProcess[str]:
        options = [f"--kubeconfig={proxy.kubeconfig}", f"--cache-dir={tmp_path}", "-n", namespace]
        return subprocess.run(
            [kubectl, *options, *words],
            input=text,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )

    with running(FaultProxy(plane.kubeconfig)) as proxy:
        made = run("apply", "-f", "-", text=json.dumps(a_config_map("made")))
        assert made.stdout == "configmap/made created\n", made.stderr
        assert run("get", "configmap", "made", "-o", "name").stdout == "configmap/made\n"
        proxy.add(Fault(resource="configmaps", code=403))
        assert "Error from server (Forbidden)" in run("get", "configmaps").stderr
        proxy.clear()
        proxy.away()
        assert "refused" in run("get", "configmaps").stderr
