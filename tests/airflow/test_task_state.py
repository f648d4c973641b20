"""The state of a task, read through the real protocol between a triggerer and its supervisor.

The supervisor is replaced: it answers from a dict instead of from the API.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import msgspec
import pytest
from airflow.jobs.triggerer_job_runner import TriggerCommsDecoder
from airflow.sdk.api.datamodels._generated import DagRunStateResponse, TaskStatesResponse
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import (
    DagRunStateResult,
    ErrorResponse,
    TaskStatesResult,
    _RequestFrame,
    _ResponseFrame,
)

from airflow_kftrain.airflow_compat import has_trigger_on_kill, state_when_killed, task_state
from airflow_kftrain.ownership import TaskState

STATES = {"run": {"train": "deferred", "waits": None, "mapped_0": "failed", "mapped_12": "success"}}


class Supervisor:
    """Answers like a triggerer's supervisor."""

    def __init__(self, end: socket.socket) -> None:
        self.asked: list[dict[str, Any]] = []
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.refuses = False
        self.run_state = "running"
        self._end = end
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        requests = msgspec.msgpack.Decoder(_RequestFrame)
        with self._end, self._end.makefile("rb") as incoming:
            while length := incoming.read(4):
                request = requests.decode(incoming.read(int.from_bytes(length, "big")))
                assert request.body is not None
                self.asked.append(request.body)
                assert self.may_answer.wait(30)
                self._end.sendall(self._answer(request).as_bytes())

    def _answer(self, request: _RequestFrame) -> _ResponseFrame:
        if self.refuses:
            error = ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail={"status_code": 500})
            return _ResponseFrame(request.id, None, error.model_dump())
        assert request.body is not None
        if request.body["type"] == "GetDagRunState":
            of_run = DagRunStateResponse.model_validate({"state": self.run_state})
            result = DagRunStateResult.from_api_response(of_run)
            return _ResponseFrame(request.id, result.model_dump())
        task, index = request.body["task_ids"][0], request.body["map_index"]
        key = task if index < 0 else f"{task}_{index}"
        known = {
            run: {name: state for name, state in tasks.items() if name == key}
            for run, tasks in STATES.items()
            if run in request.body["run_ids"] and key in tasks
        }
        answer = TaskStatesResult.from_api_response(TaskStatesResponse(task_states=known))
        return _ResponseFrame(request.id, answer.model_dump())


Ask = Callable[[Callable[[], Awaitable[Any]]], Any]


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Supervisor, Ask]]:
    """A supervisor, and a function that runs a coroutine as a triggerer does, with its end of the
    connection."""
    ours, theirs = socket.socketpair()
    supervisor = Supervisor(theirs)

    async def main(run: Callable[[], Awaitable[Any]]) -> Any:
        reader, writer = await asyncio.open_connection(sock=ours)
        comms = TriggerCommsDecoder(async_writer=writer, async_reader=reader, socket=ours)
        monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", comms, raising=False)
        if hasattr(comms, "start_reader"):  # Airflow 3.3
            await comms.start_reader()
        try:
            return await asyncio.wait_for(run(), 60)
        finally:
            if hasattr(comms, "start_reader"):
                comms._reader_task.cancel()
            writer.close()
            await writer.wait_closed()

    yield supervisor, lambda run: asyncio.run(main(run))
    ours.close()


@pytest.mark.parametrize(
    ("task", "map_index", "state"),
    [
        ("train", -1, TaskState(True, "deferred")),
        ("waits", -1, TaskState(True, None)),
        ("mapped", 0, TaskState(True, "failed")),
        ("mapped", 12, TaskState(True, "success")),
        ("mapped", 1, TaskState(False)),
        ("mapped", -1, TaskState(False)),
        ("gone", -1, TaskState(False)),
    ],
)
def test_a_state_is_asked_for_from_the_event_loop(
    wire: tuple[Supervisor, Ask], task: str, map_index: int, state: TaskState
) -> None:
    supervisor, triggerer = wire
    assert triggerer(lambda: task_state("dag", "run", task, map_index)) == state
    (asked,) = supervisor.asked
    assert (asked["dag_id"], asked["run_ids"], asked["task_ids"]) == ("dag", ["run"], [task])


@pytest.mark.parametrize(
    ("run_state", "state"),
    [
        # Also for a run that was cleared: its tasks may start at any moment.
        ("queued", "running"),
        ("running", "running"),
        ("failed", "failed"),
        ("success", "success"),
    ],
)
def test_an_iteration_of_a_task_loop_may_be_at_work_until_its_run_has_ended(
    wire: tuple[Supervisor, Ask], run_state: str, state: str
) -> None:
    """Airflow returns the state of the latest iteration, whichever was requested."""
    supervisor, triggerer = wire
    supervisor.run_state = run_state
    found = triggerer(lambda: task_state("dag", "run", "train", -1, True))
    assert found == TaskState(True, state)


def test_an_iteration_of_a_run_that_was_deleted_is_gone(wire: tuple[Supervisor, Ask]) -> None:
    _, triggerer = wire
    assert triggerer(lambda: task_state("dag", "gone", "train", -1, True)) == TaskState(False)


@pytest.mark.parametrize(("looped", "state"), [(False, "deferred"), (True, "no longer deferred")])
def test_a_kill_of_an_iteration_is_taken_at_airflows_word(
    wire: tuple[Supervisor, Ask], looped: bool, state: str
) -> None:
    _, triggerer = wire
    found = triggerer(lambda: state_when_killed("dag", "run", "train", -1, looped))
    assert found == TaskState(True, state)


def test_a_run_that_was_deleted_has_no_tasks(wire: tuple[Supervisor, Ask]) -> None:
    _, triggerer = wire
    assert triggerer(lambda: task_state("dag", "gone", "train", -1)) == TaskState(exists=False)


def test_a_lookup_that_fails_raises(wire: tuple[Supervisor, Ask]) -> None:
    supervisor, triggerer = wire
    supervisor.refuses = True
    with pytest.raises(AirflowRuntimeError):
        triggerer(lambda: task_state("dag", "run", "train", -1))


def test_outside_of_a_triggerer_a_lookup_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(task_runner, "SUPERVISOR_COMMS", raising=False)
    with pytest.raises(NameError):
        asyncio.run(task_state("dag", "run", "train", -1))


def test_many_ask_at_once(wire: tuple[Supervisor, Ask]) -> None:
    _, triggerer = wire

    async def ask() -> list[TaskState]:
        return await asyncio.gather(
            *(task_state("dag", "run", "mapped", index % 13) for index in range(40))
        )

    states = triggerer(ask)
    assert [state.state for state in states[:13]] == ["failed", *[None] * 11, "success"]
    assert len(states) == 40


def test_who_gives_up_does_not_leave_its_answer_to_the_next(wire: tuple[Supervisor, Ask]) -> None:
    """A trigger's on_kill is cancelled after 30 seconds; other triggers share its connection."""
    supervisor, triggerer = wire

    async def give_up_and_ask_again() -> TaskState:
        supervisor.may_answer.clear()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(task_state("dag", "run", "mapped", 0), 0.3)
        later = asyncio.ensure_future(task_state("dag", "run", "train", -1))
        await asyncio.sleep(0.1)
        supervisor.may_answer.set()
        return await later

    assert triggerer(give_up_and_ask_again) == TaskState(True, "deferred")


def test_triggers_are_told_of_kills_since_airflow_3_3() -> None:
    from airflow import __version__

    release = tuple(int(part) for part in __version__.split(".")[:2])
    assert has_trigger_on_kill() is (release >= (3, 3))
