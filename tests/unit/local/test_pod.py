"""Pods from their placement to their end, as real processes with an API that accepts everything."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import random
from typing import Any

import pytest

from kftrain_local.agent.machine import Machine, Settings
from kftrain_local.agent.pod import Pod
from kftrain_local.agent.processes import Process, Record, table
from kftrain_local.api_client import ApiError
from tests.unit.local import pods
from tests.unit.local.pods import a_container, a_pod

Object = dict[str, Any]

_PATIENCE = 60.0


class Api(pods.Api):
    """What the agent writes about its one pod."""

    def __init__(self, pod: Object) -> None:
        super().__init__({})
        self.pod = pod
        self.removed = False
        self.then: Callable[[], object] = lambda: None
        self.then_patched: Callable[[], object] = lambda: None

    async def create(self, path: str, body: Object) -> Object:
        return body

    async def merge_patch(self, path: str, body: Object) -> Object:
        known = body["metadata"].get("resourceVersion")
        if known not in (None, self.pod["metadata"]["resourceVersion"]):
            raise ApiError(409, "Conflict", "the object has been modified")
        answer = self.change(status=body.get("status", self.pod.get("status")))
        self.then_patched()
        return answer

    def change(self, **fields: Object) -> Object:
        """A changed pod with a new version."""
        version = int(self.pod["metadata"]["resourceVersion"]) + 1
        metadata = {**self.pod["metadata"], "resourceVersion": str(version)}
        self.pod = {**self.pod, **fields, "metadata": metadata}
        return self.pod

    async def delete(self, path: str, uid: str = "", grace: int | None = None) -> Object:
        self.removed = True
        asyncio.get_running_loop().call_soon(self.then)
        return {}

    @property
    def phase(self) -> str:
        return str((self.pod.get("status") or {}).get("phase", ""))

    def status(self, name: str = "main") -> Object:
        found = [*self.pod["status"]["initContainerStatuses"]]
        found += self.pod["status"]["containerStatuses"]
        return next(status for status in found if status["name"] == name)


def deleted(pod: Pod, grace: int) -> Object:
    """As the API server reports its deletion."""
    times = {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": grace}
    return {**pod.object, "metadata": {**pod.object["metadata"], **times}}


Scenario = Callable[[Pod, Api], Awaitable[None]]


@pytest.fixture
def play(tmp_path: Path) -> Callable[[Object, Scenario], None]:
    """Runs a scenario with a pod. At its end nothing of the pod may be left."""

    async def work(found: Object, scenario: Scenario) -> None:
        found["metadata"]["resourceVersion"] = "1"
        found["spec"].setdefault("restartPolicy", "Never")
        api = Api(found)
        machine = Machine(api, Settings(shortest_backoff=0.1), tmp_path)
        pod = Pod(machine, found)
        try:
            await scenario(pod, api)
        finally:
            pod.task.cancel()
            await machine.finish(_PATIENCE)
            assert [*machine.pods.glob("*"), *machine.scratch.glob("*")] == []

    return lambda found, scenario: asyncio.run(work(found, scenario))


def log_of(pod: Pod) -> str:
    return "".join(file.read_text() for file in pod.folder.glob("*.log"))


async def until(good: Callable[[], object]) -> None:
    end = time.monotonic() + _PATIENCE
    while not good():
        assert time.monotonic() < end, "waited in vain"
        await asyncio.sleep(0.05)


def test_a_sidecar_ends_when_an_init_container_after_it_fails(play: Any) -> None:
    async def scenario(pod: Pod, api: Api) -> None:
        await until(lambda: api.phase == "Failed")
        assert api.status("bad")["state"]["terminated"]["exitCode"] == 3
        assert api.status("side")["state"]["terminated"]["exitCode"] == 143

    side = a_container(name="side", command=["sleep", "60"], restartPolicy="Always")
    bad = a_container(name="bad", command=["sh", "-c", "sleep 0.5; exit 3"])
    play(a_pod(a_container(), initContainers=[side, bad]), scenario)


def test_there_is_room_for_the_path_of_a_socket_in_tmpdir(play: Any, tmp_path: Path) -> None:
    """multiprocessing, and so torch's DataLoader, creates sockets there."""

    async def scenario(pod: Pod, api: Api) -> None:
        await until(lambda: api.phase == "Succeeded")
        place = api.status()["state"]["terminated"]["message"]
        assert Path(place).is_relative_to(tmp_path)
        assert len(place) < len(f"{tmp_path}/tmp/12345678/")

    command = ["sh", "-c", "printf %s $TMPDIR > /dev/termination-log"]
    found = a_pod(a_container(command=command))
    found["metadata"]["uid"] = "7330e226-0ead-47b5-b382-47bd7aa22f75"
    play(found, scenario)


def test_a_pod_with_the_longest_of_names(play: Any) -> None:
    async def scenario(pod: Pod, api: Api) -> None:
        await until(lambda: api.phase == "Succeeded")

    found = a_pod(a_container(name="c" * 63))
    found["metadata"] |= {"name": "n" * 253, "namespace": "s" * 63, "uid": "u" * 36}
    play(found, scenario)


_FORKS = """
import os, time
if os.fork():
    time.sleep(0.5)
    open("/dev/termination-log", "w").write(str(os.getpid()))
    os._exit(0)
os.fork(); os.fork(); os.fork()
while True:
    if not os.fork():
        time.sleep(0.2)
        os._exit(0) if os.fork() else time.sleep(60)
    time.sleep(0.01)
"""


def test_nothing_outlives_a_container_that_forks_while_it_is_ended(play: Any) -> None:
    async def scenario(pod: Pod, api: Api) -> None:
        await until(lambda: api.phase == "Succeeded")
        session = int(api.status()["state"]["terminated"]["message"])
        assert [each for each in table().values() if each.session == session] == []

    play(a_pod(a_container(command=[sys.executable, "-c", _FORKS])), scenario)


def test_numbers_of_processes_that_have_ended_are_nobodys(play: Any) -> None:
    async def scenario(pod: Pod, api: Api) -> None:
        await until(lambda: api.phase == "Succeeded")
        session = int(api.status()["state"]["terminated"]["message"])
        daemon = {7: Process(parent=1, session=session, memory=0, started="later")}
        assert Record(pod.folder / "main.record").members(daemon) == set()

    command = ["sh", "-c", "echo $$$$ > /dev/termination-log"]
    play(a_pod(a_container(command=command)), scenario)


def test_a_second_deletion_may_be_less_patient(play: Any) -> None:
    async def scenario(pod: Pod, api: Api) -> None:
        await until(lambda: api.phase == "Running" and "ready" in log_of(pod))
        pod.update(deleted(pod, 600))
        await asyncio.sleep(0.2)
        assert not api.removed
        pod.update(deleted(pod, 1))
        await until(lambda: api.removed)
        assert api.status()["state"]["terminated"]["exitCode"] == 137

    stubborn = ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done"]
    play(a_pod(a_container(command=stubborn)), scenario)


@pytest.mark.parametrize("program", ["python", "python3"])
def test_python_gets_variables_with_any_name(play: Any, program: str) -> None:
    async def scenario(pod: Pod, api: Api) -> None:
        await until(lambda: api.phase == "Succeeded")
        assert log_of(pod).endswith(f" {sys.executable} yes\n")

    command = [program, "-c", "import os, sys; print(sys.executable, os.environ['my.var'])"]
    play(a_pod(a_container(command=command, env=[{"name": "my.var", "value": "yes"}])), scenario)


@pytest.mark.parametrize(
    "fields",
    [
        {"env": [{"name": "A", "value": "\0"}]},
        {"args": ["\0"]},
        {"volumeMounts": [{"name": "v", "mountPath": "/m", "subPath": "name/x"}]},
    ],
)
def test_what_cannot_be_started_is_waited_for(play: Any, fields: Object) -> None:
    async def scenario(pod: Pod, api: Api) -> None:
        await until(lambda: "containerStatuses" in (api.pod.get("status") or {}))
        await until(lambda: "message" in api.status()["state"].get("waiting", {}))
        assert api.status()["state"]["waiting"]["reason"] == "RunContainerError"
        assert api.phase == "Pending"

    name = {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}
    volume = {"name": "v", "downwardAPI": {"items": [name]}}
    play(a_pod(a_container(**fields), volumes=[volume]), scenario)


def test_volumes_that_cannot_be_written_are_waited_for(play: Any) -> None:
    async def scenario(pod: Pod, api: Api) -> None:
        await asyncio.sleep(0.5)
        assert api.phase == "Pending"

    field = {"fieldRef": {"fieldPath": "metadata.name"}}
    items = [{"path": "a", **field}, {"path": "a/b", **field}]
    play(a_pod(a_container(), volumes=[{"name": "v", "downwardAPI": {"items": items}}]), scenario)


def test_a_command_may_refer_to_variables_of_the_spec_alone(play: Any) -> None:
    async def scenario(pod: Pod, api: Api) -> None:
        await until(lambda: api.phase == "Succeeded")
        assert log_of(pod).endswith(" $(HOME) $(HOSTNAME) a $(A) $a $(A\n")

    command = ["echo", "$(HOME)", "$(HOSTNAME)", "$(A)", "$$(A)", "$$$(A)", "$(A"]
    play(a_pod(a_container(command=command, env=[{"name": "A", "value": "a"}])), scenario)


def test_what_the_api_tells_at_once_does_not_stop_the_cleaning_up(play: Any) -> None:
    """The agent drops a pod when it hears that it is gone, often before it has its own answer."""

    async def scenario(pod: Pod, api: Api) -> None:
        api.then = pod.task.cancel
        await until(lambda: api.phase == "Succeeded")
        pod.update(deleted(pod, 30))
        await asyncio.wait([pod.task])

    play(a_pod(a_container()), scenario)


@pytest.mark.skipif(shutil.which("setsid") is None, reason="needs the program setsid")
def test_what_leaves_its_session_while_it_is_killed_is_killed_too(play: Any) -> None:
    async def scenario(pod: Pod, api: Api) -> None:
        await until(lambda: api.phase == "Running" and "ready" in log_of(pod))
        await asyncio.sleep(0.2)
        pod.update(deleted(pod, 0))
        await until(lambda: api.removed)

    mark = f"{60 + random():.9f}"
    loop = f"while :; do setsid sleep {mark} & sleep 0.005; done"
    play(a_pod(a_container(command=["sh", "-c", f"echo ready; {loop} & {loop}"])), scenario)
    listing = subprocess.run(["ps", "-axo", "args="], capture_output=True, text=True, check=True)
    assert f"sleep {mark}" not in listing.stdout.splitlines()


def test_an_answer_that_the_watch_has_overtaken_is_old(play: Any) -> None:
    async def scenario(pod: Pod, api: Api) -> None:
        # Another client changes the pod after each of our changes, and the watch is faster.
        api.then_patched = lambda: pod.update(api.change())
        await until(lambda: api.phase == "Succeeded")

    play(a_pod(a_container()), scenario)


def test_what_is_about_to_start_is_ended(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    execute = asyncio.create_subprocess_exec
    sessions = []

    async def execute_slowly(*words: Any, **options: Any) -> asyncio.subprocess.Process:
        process = await execute(*words, **options)
        sessions.append(process.pid)
        await asyncio.sleep(0.5)  # as on a busy machine
        return process

    async def scenario(pod: Pod, api: Api) -> None:
        await until(lambda: "forked" in log_of(pod))
        pod.update(deleted(pod, 0))
        await until(lambda: api.removed)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", execute_slowly)
    play(a_pod(a_container(command=["sh", "-c", "sleep 60 & echo forked; sleep 60"])), scenario)
    assert len(sessions) == 1
    assert [each for each in table().values() if each.session in sessions] == []
