"""The node agent with a real control plane: real scheduler, real operators, real processes.

`$$$$` in a command is the shell's `$$`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kftrain_local.agent.processes import PACKAGE_ROOT
from kftrain_local.api_client import ApiClient, ApiError, core, read_kubeconfig
from tests.control_plane import ControlPlane

Object = dict[str, Any]

_PATIENCE = 40.0


class World:
    """One namespace of the control plane, with an agent."""

    def __init__(self, kubeconfig: str, namespace: str) -> None:
        self._cluster = read_kubeconfig(kubeconfig)
        self.namespace = namespace

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        async def work() -> Any:
            async with ApiClient(self._cluster) as client:
                return await getattr(client, method)(*args, **kwargs)

        return asyncio.run(work())

    def path(self, name: str = "", part: str = "", plural: str = "pods") -> str:
        return core(self.namespace, plural, name, part)

    def pod(self, name: str, *command: str, **fields: Any) -> None:
        container = {"name": "main", "image": "x", "command": list(command)}
        container |= fields.pop("container", {})
        spec = {"restartPolicy": "Never", "containers": [container], **fields}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        self.call("create", self.path(), body)

    def until(self, name: str, good: Callable[[Object], Any]) -> Object:
        end = time.monotonic() + _PATIENCE
        while True:
            pod: Object = self.call("get", self.path(name))
            if good(pod):
                return pod
            assert time.monotonic() < end, json.dumps(pod["status"], indent=1)
            time.sleep(0.1)

    def ended(self, name: str) -> Object:
        pod = self.until(name, lambda pod: pod["status"].get("phase") in ("Succeeded", "Failed"))
        return dict(pod["status"])

    def log(self, name: str, **options: str) -> str:
        query = "&".join(f"{key}={value}" for key, value in options.items())

        async def work() -> str:
            async with ApiClient(self._cluster) as client:
                assert client._session is not None
                url = f"{self._cluster.server}{self.path(name, 'log')}?{query}"
                async with client._session.get(url) as response:
                    return await response.text()

        return asyncio.run(work())


class AgentProcess:
    def __init__(self, kubeconfig: str, name: str, folder: Path) -> None:
        self.folder = folder
        self._words = ["--kubeconfig", kubeconfig, "--name", name, "--state-dir", str(folder)]
        self._words += ["--backoff", "0.5", "--cpu", "64", "--gpus", "4"]
        self._log = folder.parent / f"{folder.name}.log"
        self.start()

    def start(self) -> None:
        with open(self._log, "w") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "kftrain_local.agent", *self._words],
                stderr=output,
                env={**os.environ, "PYTHONPATH": PACKAGE_ROOT, "SECRET_OF_THE_AGENT": "hush"},
            )
        end = time.monotonic() + _PATIENCE
        while "is ready" not in self._log.read_text():
            assert self.process.poll() is None, self._log.read_text()
            assert time.monotonic() < end
            time.sleep(0.05)

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(60)


@pytest.fixture(scope="module")
def agent(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentProcess]:
    folder = tmp_path_factory.mktemp("agent") / "state"
    agent = AgentProcess(str(plane.kubeconfig), f"n-{secrets.token_hex(4)}", folder)
    yield agent
    assert agent.stop() == 0
    assert not folder.exists()


@pytest.fixture
def world(plane: ControlPlane, agent: AgentProcess) -> Iterator[World]:
    name = f"t-{secrets.token_hex(4)}"
    world = World(str(plane.kubeconfig), name)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    world.call("create", core("", "namespaces"), namespace)
    yield world
    world.call("delete", core("", "namespaces", name))


def the_end(status: Object) -> Object:
    return dict(status["containerStatuses"][0]["state"]["terminated"])


def alive(word: str) -> bool:
    listing = subprocess.run(["ps", "-axo", "args="], capture_output=True, text=True, check=True)
    return any(word in line for line in listing.stdout.splitlines())


# ----- pods


@pytest.mark.parametrize("container", [{"command": []}, {"workingDir": "/not/there"}])
def test_what_only_an_image_could_give_is_waited_for(world: World, container: Object) -> None:
    world.pod("p", "true", container=container)

    def waits(pod: Object) -> bool:
        (status,) = pod["status"].get("containerStatuses") or [{}]
        reason = status.get("state", {}).get("waiting", {}).get("reason")
        return bool(reason == "CreateContainerError")

    assert world.until("p", waits)["status"]["phase"] == "Pending"


def test_deletion_ends_all_processes_and_keeps_to_the_grace_period(world: World) -> None:
    mark = f"9{secrets.randbelow(10**6):06d}.5"
    stubborn = f"trap '' TERM; setsid sleep {mark} & while :; do sleep 0.2; done"
    world.pod("p", "sh", "-c", stubborn, terminationGracePeriodSeconds=2)
    world.until("p", lambda pod: pod["status"].get("phase") == "Running" and alive(mark))
    start = time.monotonic()
    world.call("delete", world.path("p"))
    with contextlib.suppress(ApiError):
        while world.call("get", world.path("p")):
            assert time.monotonic() < start + _PATIENCE
            time.sleep(0.1)
    assert 1.5 < time.monotonic() - start < 25
    assert not alive(mark)


def test_what_is_not_supported_is_told_once(world: World) -> None:
    probe = {"livenessProbe": {"exec": {"command": ["true"]}}}
    world.pod("p", "true", container=probe)
    world.ended("p")
    end = time.monotonic() + _PATIENCE
    while True:
        events = world.call("list", world.path(plural="events"))[0]
        told = [e["message"] for e in events if e["reason"] == "NotSupported"]
        if told:
            break
        assert time.monotonic() < end
        time.sleep(0.1)
    assert [text.partition(": ")[0] for text in told] == ["spec.containers[0].livenessProbe"]


def test_an_agent_that_was_killed_leaves_no_process_and_takes_up_its_pods_again(
    plane: ControlPlane, agent: AgentProcess, world: World
) -> None:
    mark = f"9{secrets.randbelow(10**6):06d}.5"
    world.pod("stays", "sh", "-c", f"sleep {mark} & sleep {mark}")
    world.pod("goes", "sleep", mark)
    for name in ("stays", "goes"):
        world.until(name, lambda pod: pod["status"].get("phase") == "Running")
    agent.process.send_signal(signal.SIGKILL)
    agent.process.wait()
    end = time.monotonic() + _PATIENCE
    while alive(mark):
        assert time.monotonic() < end
        time.sleep(0.1)
    world.call("delete", world.path("goes"))
    agent.start()
    assert the_end(world.ended("stays"))["reason"] == "ContainerStatusUnknown"
    with contextlib.suppress(ApiError):
        while world.call("get", world.path("goes")):
            assert time.monotonic() < end
            time.sleep(0.1)
