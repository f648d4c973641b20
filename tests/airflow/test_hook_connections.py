"""hooks: connections that only the supervisor knows, through the real protocol.

The supervisor is replaced: it knows one connection instead of asking the API.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from airflow.jobs.triggerer_job_runner import TriggerCommsDecoder
from airflow.sdk.exceptions import ErrorType
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import (
    CommsDecoder,
    ConnectionResult,
    ErrorResponse,
    _RequestFrame,
    _ResponseFrame,
)

from airflow_kftrain.errors import BadConnection
from airflow_kftrain.hooks.api_calls import get_version
from airflow_kftrain.hooks.training_job import TrainingJobHook
from airflow_kftrain.hooks.training_job_async import AsyncTrainingJobHook
from tests.airflow.doorkeeper import Doorkeeper

# The oldest supported cncf-kubernetes imports from modules that Airflow 3.1 has moved.
pytestmark = pytest.mark.filterwarnings("ignore:The `airflow")


class Supervisor:
    """Knows one connection, `stored`."""

    def __init__(self, end: socket.socket, extra: dict[str, Any]) -> None:
        self.asked: list[str] = []
        self._end = end
        self._extra = json.dumps(extra)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        requests = msgspec.msgpack.Decoder(_RequestFrame)
        with self._end, self._end.makefile("rb") as incoming:
            while length := incoming.read(4):
                request = requests.decode(incoming.read(int.from_bytes(length, "big")))
                assert request.body is not None
                self.asked.append(request.body["type"])
                self._end.sendall(self._answer(request.id, request.body).as_bytes())

    def _answer(self, number: int, body: dict[str, Any]) -> _ResponseFrame:
        if body["type"] != "GetConnection":  # MaskSecret
            return _ResponseFrame(number)
        if body["conn_id"] != "stored":
            error = ErrorResponse(error=ErrorType.CONNECTION_NOT_FOUND)
            return _ResponseFrame(number, None, error.model_dump())
        said = dict.fromkeys(("host", "schema", "login", "password", "port"))
        said |= {"conn_id": "stored", "conn_type": "kubernetes", "extra": self._extra}
        found = ConnectionResult.model_validate(said)
        return _ResponseFrame(number, found.model_dump(by_alias=True))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Doorkeeper]:
    with Doorkeeper("cluster", tmp_path / "cluster").at_work() as keeper:
        yield keeper


@pytest.fixture
def wire(cluster: Doorkeeper) -> Iterator[tuple[Supervisor, socket.socket]]:
    ours, theirs = socket.socketpair()
    supervisor = Supervisor(theirs, {"kube_config": json.dumps(cluster.kubeconfig())})
    with ours:
        yield supervisor, ours


async def _many() -> set[str]:
    hooks = [AsyncTrainingJobHook("stored") for _ in range(10)]
    answers = await asyncio.gather(*[hook.ask(get_version()) for hook in hooks])
    return {answer["gitVersion"] for answer in answers}


def test_a_worker_asks_the_supervisor(
    wire: tuple[Supervisor, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor, end = wire
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", CommsDecoder(socket=end), raising=False)
    assert TrainingJobHook("stored").ask(get_version())["gitVersion"] == "cluster"
    assert "GetConnection" in supervisor.asked
    with pytest.raises(BadConnection, match="there is no such connection"):
        TrainingJobHook("none").ask(get_version())


def test_a_worker_that_waits_in_a_loop_asks_the_supervisor(
    wire: tuple[Supervisor, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor, end = wire
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", CommsDecoder(socket=end), raising=False)
    assert TrainingJobHook("stored").ask(get_version())["gitVersion"] == "cluster"
    before = supervisor.asked.count("GetConnection")
    for _ in range(2):  # a second loop in the same process
        assert asyncio.run(_many()) == {"cluster"}
    assert supervisor.asked.count("GetConnection") - before <= 4
    with pytest.raises(BadConnection, match="there is no such connection"):
        asyncio.run(AsyncTrainingJobHook("none").ask(get_version()))


def test_a_triggerer_asks_its_supervisor(
    wire: tuple[Supervisor, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor, end = wire

    async def work() -> set[str]:
        reader, writer = await asyncio.open_connection(sock=end)
        comms = TriggerCommsDecoder(async_writer=writer, async_reader=reader, socket=end)
        monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", comms, raising=False)
        if hasattr(comms, "start_reader"):  # Airflow 3.3
            await comms.start_reader()
        try:
            answers = await asyncio.wait_for(_many(), 60)
            with pytest.raises(BadConnection, match="there is no such connection"):
                await AsyncTrainingJobHook("none").ask(get_version())
            return answers
        finally:
            if hasattr(comms, "start_reader"):
                comms._reader_task.cancel()
            writer.close()
            await writer.wait_closed()

    assert asyncio.run(work()) == {"cluster"}
    assert supervisor.asked.count("GetConnection") <= 4
