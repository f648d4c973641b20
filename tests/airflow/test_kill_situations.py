"""What happens to a job when its task is ended, or seems to be: every known situation.

Operators, triggers, hooks, sweeper and cluster are real. Airflow is replaced: each situation makes
the calls that Airflow 3.3 or 3.1 was seen to make, in their order, and a look-up of a task's state
returns what the metadata database would contain. The table in docs/timeouts-and-kill.md lists these
situations.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

from airflow_kftrain import Lifecycle, Pod
from airflow_kftrain.airflow_compat import exceptions
from airflow_kftrain.job_state import read_state
from airflow_kftrain.kinds import PYTORCH_JOB
from airflow_kftrain.ownership import read_claim
from airflow_kftrain.watching import ending
from airflow_kftrain.watching.sweeping import Sweeper
from kftrain_local.faults.command import FaultProxy, running
from tests.cluster.operated import PYTORCH, Instance, Operated, execute, operator, resume
from tests.cluster.targets import LocalTarget
from tests.cluster.world import World, eventually
from tests.control_plane.api import Manifest

pytestmark = [
    pytest.mark.timeout(120),
    # The oldest supported cncf.kubernetes imports from modules that Airflow 3.1 has moved.
    pytest.mark.filterwarnings("ignore:The `airflow"),
    # If a watch ends while its Kubernetes client is being created, the library that opens the
    # kubeconfig, in a thread, leaves the file to the garbage collector.
    pytest.mark.filterwarnings(
        "ignore:Exception ignored in. <_io.FileIO:pytest.PytestUnraisableExceptionWarning"
    ),
]

PAGE = Path(__file__).parents[2] / "docs" / "timeouts-and-kill.md"
ERRORS = exceptions()
FOR_EVER = "sleep 300"
QUICK = Pod(patch={"spec": {"terminationGracePeriodSeconds": 1}})
_A_KILL = "the user acted"


class Killed(BaseException):
    """The process no longer exists."""


# ----- instead of Airflow


class Triggerer:
    """Runs triggers like Airflow's triggerer (jobs/triggerer_job_runner.py), in a thread of its
    own."""

    def __init__(self, *, tells_of_kills: bool) -> None:
        self._tells_of_kills = tells_of_kills
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._loop.run_forever()
        # Like asyncio.run: the sweeper may just have started a check.
        while left := asyncio.all_tasks(self._loop):
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.wait(left))
        self._loop.close()

    def start(self, waits: Any, instance: Instance) -> Trigger:
        """From what Airflow has stored of the deferral."""
        path, arguments = waits.trigger.serialize()
        module, _, name = path.rpartition(".")
        made = getattr(import_module(module), name)(**json.loads(json.dumps(arguments)))
        made.task_instance = instance
        return Trigger(self, made)

    def submit(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def run_trigger(self, trigger: Trigger) -> None:
        made = trigger.made
        trigger.began.set()
        try:
            async for event in made.run():
                trigger.events.append(json.loads(json.dumps(event.payload)))
                if trigger.lingers:
                    await asyncio.Event().wait()
        except asyncio.CancelledError:
            if trigger.is_told and self._tells_of_kills:
                with suppress(Exception):
                    await asyncio.wait_for(made.on_kill(), 30)
            raise
        finally:
            with suppress(Exception):
                await made.cleanup()

    def stop(self) -> None:
        """Like a rolling deployment: triggers are cancelled, but not told of a kill."""
        if self._thread.is_alive():
            self.submit(self._end()).result(60)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(60)

    async def _end(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._loop.shutdown_asyncgens()
        await asyncio.sleep(0.05)


class Trigger:
    def __init__(self, triggerer: Triggerer, made: Any) -> None:
        self.made = made
        self.events: list[dict[str, Any]] = []
        self.is_told = False
        self.lingers = False
        self.began = threading.Event()
        self._done = threading.Event()
        self._task: asyncio.Task[None] | None = None
        self._triggerer = triggerer
        triggerer.submit(self._keep())

    async def _keep(self) -> None:
        self._task = asyncio.ensure_future(self._triggerer.run_trigger(self))
        with suppress(asyncio.CancelledError):
            await asyncio.wait({self._task})
        self._done.set()

    def cancel(self, *, told: bool) -> None:
        """With `told`, as the triggerer does with a trigger that its task no longer needs."""
        self.is_told = told

        async def cancel() -> None:
            assert self._task is not None
            self._task.cancel()

        assert self.began.wait(10)
        self._triggerer.submit(cancel()).result(10)
        assert self._done.wait(60)

    def event(self) -> dict[str, Any]:
        return eventually(lambda: self.events[0] if self.events else None)


class Stage:
    """One task of one Airflow, and the cluster."""

    def __init__(self, operated: Operated, monkeypatch: pytest.MonkeyPatch) -> None:
        self.operated = operated
        self.world = operated.world
        self.monkeypatch = monkeypatch
        self.states: dict[str, str | None] = {}
        self.answers = True
        self.tells_of_kills = True
        self.uids: list[str] = []
        self.first_owner = ""
        self._triggerers: list[Triggerer] = []
        self._triggers: dict[str, Trigger] = {}

    def look_up(self, **asked: Any) -> dict[str, dict[str, str | None]]:
        if not self.answers:
            raise OSError("the API server does not answer")
        assert asked["dag_id"] == Instance.dag_id
        assert asked["run_ids"] == [Instance.run_id]
        return {Instance.run_id: {k: self.states[k] for k in asked["task_ids"] if k in self.states}}

    # What Airflow does

    def triggerer(self) -> Triggerer:
        made = Triggerer(tells_of_kills=self.tells_of_kills)
        self._triggerers.append(made)
        return made

    def submit(self, instance: Instance, **more: Any) -> Any:
        """A worker runs the task until it defers. Returns how it resumes."""
        self.states[instance.task_id] = "running"
        given = {"pod": QUICK, "task_id": instance.task_id, "deferrable": True, **more}
        try:
            with pytest.raises(ERRORS.TaskDeferred) as caught:
                execute(operator(given.pop("script", FOR_EVER), **given), instance)
        finally:
            self._remember(instance)
        self.states[instance.task_id] = "deferred"
        return caught.value

    def _remember(self, instance: Instance) -> None:
        job = instance.xcoms.get("job")
        if job and instance.task_id == "train" and job["uid"] not in self.uids:
            self.uids.append(job["uid"])
            self.first_owner = self.first_owner or instance.id

    def defers(self, instance: Instance, **more: Any) -> tuple[Any, Trigger]:
        waits = self.submit(instance, **more)
        return waits, self.triggerer().start(waits, instance)

    def mark(self, state: str | None, task: str = "train") -> None:
        self.states[task] = state

    def forget(self, task: str = "train") -> None:
        del self.states[task]

    def dies_after_submit(self, instance: Instance, **more: Any) -> None:
        """A worker that is killed after it has created the job, and before Airflow has stored the
        deferral."""
        with self.monkeypatch.context() as patched:
            patched.setattr(
                "airflow_kftrain.operators.training_job.BaseTrainingJobOperator.defer", _die
            )
            with pytest.raises(Killed):
                self.submit(instance, **more)

    def waits_until_sigterm(
        self, instance: Instance, *, marked: str = "running", **more: Any
    ) -> None:
        """A worker that waits and is ended. `marked` is the state of the task at that moment."""
        task = operator(FOR_EVER, pod=QUICK, deferrable=False, **more)
        former = signal.signal(signal.SIGTERM, lambda *_: task.on_kill())
        self.states["train"] = "running"

        def end() -> None:
            self.operated.runs()
            eventually(lambda: "job" in instance.xcoms)
            self.states["train"] = marked
            os.kill(os.getpid(), signal.SIGTERM)

        threading.Thread(target=end).start()
        try:
            with pytest.raises(ERRORS.AirflowException):
                execute(task, instance)
        finally:
            signal.signal(signal.SIGTERM, former)
            self._remember(instance)

    def bystander(self) -> None:
        """Another deferred task of this Airflow, so that its triggerer watches all jobs."""
        other = Instance()
        other.task_id = "other"
        self.defers(other)

    # What the test sees

    def jobs(self) -> dict[str, Manifest]:
        return {job["metadata"]["uid"]: job for job in self.world.listed(*PYTORCH)}

    def fate(self, uid: str) -> str:
        job = self.jobs().get(uid)
        claim = read_claim(job)
        if job is None or claim.terminating:
            return "deleted"
        if read_state(PYTORCH_JOB, job).phase.is_final:
            return "ended"
        first = uid == self.uids[0] and claim.owner.ti_id != self.first_owner
        return "adopted" if first else "runs"

    def fates(self) -> tuple[str, ...]:
        return tuple(self.fate(uid) for uid in self.uids)

    def swept(self, uid_number: int = 0) -> None:
        eventually(lambda: self.fate(self.uids[uid_number]) == "deleted", self.fates)

    def close(self) -> None:
        for triggerer in self._triggerers:
            triggerer.stop()


def _die(*_: object, **__: object) -> None:
    raise Killed


def clear(before: Instance, retries: int = 0) -> Instance:
    """The next try, as Airflow creates it for a task that is cleared."""
    after = Instance(before=before)
    after.max_tries = before.try_number + retries
    return after


# ----- the situations


class Situation(NamedTuple):
    happens: str
    calls: str
    """What Airflow does in it."""
    fates: tuple[str, ...]
    """What happens to each training that was started."""
    words: str
    play: Callable[[Stage], None]


SITUATIONS: list[Situation] = []


def situation(
    happens: str, calls: str, *fates: str, words: str = ""
) -> Callable[[Callable[[Stage], None]], Callable[[Stage], None]]:
    def add(play: Callable[[Stage], None]) -> Callable[[Stage], None]:
        SITUATIONS.append(Situation(happens, calls, fates, words or _WORDS[fates], play))
        return play

    return add


_WORDS = {
    ("deleted",): "is deleted",
    ("runs",): "continues",
    ("adopted",): "continues, and the retry adopts it",
    ("deleted", "runs"): "is deleted; the new try creates a new one",
    ("ended",): "stays as it ended",
    ("ended", "runs"): "stays as it ended; the retry creates a new one",
}


def _marked(state: str) -> Callable[[Stage], None]:
    def play(stage: Stage) -> None:
        _, trigger = stage.defers(Instance())
        stage.mark(state)
        trigger.cancel(told=True)

    return play


situation("The task is marked failed", "calls `on_kill` of the trigger", "deleted")(
    _marked("failed")
)
situation("The task is marked success", "calls `on_kill`", "deleted")(_marked("success"))
situation("The run exceeds `dagrun_timeout`", "calls `on_kill`; the task is skipped", "deleted")(
    _marked("skipped")
)
situation("The task is removed from its DAG", "calls `on_kill`; the task is removed", "deleted")(
    _marked("removed")
)


@situation("The run is deleted", "calls `on_kill`; the task no longer exists", "deleted")
def _(stage: Stage) -> None:
    _, trigger = stage.defers(Instance())
    stage.forget()
    trigger.cancel(told=True)


@situation(
    "The task is cleared, and runs again at once",
    "calls `execute` of the new try, and only then `on_kill` of the old one, which learns that "
    "the task is deferred",
    *("deleted", "runs"),
)
def _(stage: Stage) -> None:
    first = Instance()
    _, old = stage.defers(first)
    _, new = stage.defers(clear(first))
    old.cancel(told=True)
    assert not new.events


@situation(
    "The task is cleared, and has to wait for a slot",
    "calls `on_kill` of the old try, later `execute` of the new one",
    *("deleted", "runs"),
)
def _(stage: Stage) -> None:
    first = Instance()
    _, old = stage.defers(first)
    stage.mark(None)
    old.cancel(told=True)
    assert stage.fates() == ("deleted",)
    stage.defers(clear(first))


@situation(
    "The task is cleared after its author has lowered `retries`",
    "the same, with the same `max_tries`",
    *("deleted", "runs"),
)
def _(stage: Stage) -> None:
    first = Instance(retries=3)
    _, old = stage.defers(first, retries=3)
    again = clear(first, retries=2)
    assert again.max_tries == first.max_tries
    stage.defers(again, retries=2)
    old.cancel(told=True)


@situation("The execution timeout expires", "nothing: the trigger ends the job", "deleted")
def _(stage: Stage) -> None:
    first = Instance()
    waits, trigger = stage.defers(first, execution_timeout=timedelta(seconds=3))
    event = trigger.event()
    task = operator(FOR_EVER, execution_timeout=timedelta(seconds=3))
    with pytest.raises(ERRORS.AirflowTaskTimeout):
        resume(task, first, waits.method_name, {**waits.kwargs, "event": event})


@situation(
    "The task was deferred for too long",
    "calls `cleanup`, and `resume_execution` of the operator to fail the task",
    "deleted",
)
def _(stage: Stage) -> None:
    _deferred_too_long(stage)


def _deferred_too_long(stage: Stage) -> None:
    first = Instance()
    _, trigger = stage.defers(first)
    trigger.made.timeout_after = datetime.now(timezone.utc)
    stage.mark("scheduled")
    trigger.cancel(told=False)
    assert stage.fates() == ("runs",)
    stage.mark("running")
    with pytest.raises(ERRORS.TaskDeferralTimeout):
        resume(operator(FOR_EVER), first, "__fail__", {"error": "Trigger timeout"})


@situation(
    "The trigger keeps running after its event",
    "calls `on_kill` of a trigger that has fired",
    "runs",
    words="is left to the worker, as after every event",
)
def _(stage: Stage) -> None:
    waits = stage.submit(Instance(), execution_timeout=timedelta(seconds=2))
    triggerer = stage.triggerer()
    trigger = triggerer.start(waits, Instance())
    trigger.lingers = True
    trigger.event()
    stage.mark("scheduled")
    trigger.cancel(told=True)


@situation(
    "The triggerer is stopped, as in a deployment",
    "calls `cleanup`; another triggerer takes over",
    "runs",
)
def _(stage: Stage) -> None:
    waits, _ = stage.defers(Instance())
    stage._triggerers[0].stop()
    taken_over = stage.triggerer().start(waits, Instance())
    time.sleep(1)
    assert not taken_over.events


@situation("The triggerer is killed", "nothing; another triggerer takes over", "runs")
def _(stage: Stage) -> None:
    waits = stage.submit(Instance())
    taken_over = stage.triggerer().start(waits, Instance())
    time.sleep(1)
    assert not taken_over.events


@situation(
    "The triggerer freezes, another one takes over, and the first one wakes up",
    "calls `on_kill`, although nobody has killed the task: it is deferred",
    "runs",
)
def _(stage: Stage) -> None:
    first = Instance()
    waits, frozen = stage.defers(first)
    taken_over = stage.triggerer().start(waits, first)
    time.sleep(1)
    frozen.cancel(told=True)
    assert not taken_over.events


@situation(
    "It wakes up after the job and the task have ended",
    "calls `on_kill` of the frozen trigger",
    "ended",
)
def _(stage: Stage) -> None:
    kept = {"script": "true", "lifecycle": Lifecycle(on_finish="keep")}
    first = Instance()
    waits = stage.submit(first, **kept)
    frozen = stage.triggerer().start(waits, first)
    event = stage.triggerer().start(waits, first).event()
    resume(
        operator("true", lifecycle=Lifecycle(on_finish="keep")),
        first,
        waits.method_name,
        {**waits.kwargs, "event": event},
    )
    stage.mark("success")
    frozen.cancel(told=True)


@situation(
    "The task is marked failed while no triggerer runs, or before one has started its trigger",
    "nothing: the trigger is dropped",
    "deleted",
    words="is swept by a triggerer that watches another job",
)
def _(stage: Stage) -> None:
    stage.submit(Instance())
    stage.mark("failed")
    stage.bystander()
    stage.swept()


@situation(
    "The Kubernetes API is unreachable while the task is marked failed",
    "calls `on_kill`, which gives up in time",
    "deleted",
    words="is swept as soon as the API is reachable",
)
def _(stage: Stage) -> None:
    stage.monkeypatch.setattr(ending, "PATIENCE", 2.0)
    with running(FaultProxy(stage.world.target.kubeconfig)) as proxy:
        stage.operated.connect(str(proxy.kubeconfig), stage.monkeypatch)
        stage.bystander()
        _, trigger = stage.defers(Instance())
        stage.mark("failed")
        proxy.away()
        trigger.cancel(told=True)
        assert stage.fates() == ("runs",)
        proxy.back()
        stage.swept()
        stage.close()  # while the proxy exists


@situation(
    "Airflow does not return the state of the task",
    "calls `on_kill`, whose request fails",
    "deleted",
    words="continues, and is swept once Airflow answers",
)
def _(stage: Stage) -> None:
    stage.bystander()
    _, trigger = stage.defers(Instance())
    stage.mark("failed")
    stage.answers = False
    trigger.cancel(told=True)
    assert stage.fates() == ("runs",)
    stage.answers = True
    stage.swept()


@situation(
    "The worker is killed before it defers, or while it waits; a retry is left",
    "starts the retry",
    "adopted",
)
def _(stage: Stage) -> None:
    first = Instance(retries=1)
    stage.dies_after_submit(first, retries=1)
    stage.defers(Instance(before=first), retries=1)


@situation(
    "The same, and the DAG is fixed before the retry",
    "starts the retry, with another manifest",
    *("deleted", "runs"),
)
def _(stage: Stage) -> None:
    first = Instance(retries=1)
    stage.dies_after_submit(first, retries=1)
    stage.defers(Instance(before=first), retries=1, script=f"echo mended; {FOR_EVER}")


@situation(
    "The worker is killed before it defers, or while it waits, in the last try",
    "nothing; the task has failed",
    "deleted",
    words="is swept by a triggerer that watches another job",
)
def _(stage: Stage) -> None:
    stage.dies_after_submit(Instance())
    stage.mark("failed")
    stage.bystander()
    stage.swept()


@situation(
    "The worker is killed after the job has succeeded, before it could report that",
    "starts the retry",
    "ended",
    words="gives its result to the retry: nothing is trained twice",
)
def _(stage: Stage) -> None:
    kept = {"lifecycle": Lifecycle(on_finish="keep"), "retries": 1, "script": "true"}
    first = Instance(retries=1)
    _, trigger = stage.defers(first, **kept)
    trigger.event()
    task = operator("true", lifecycle=Lifecycle(on_finish="keep"), retries=1)
    execute(task, Instance(before=first))


@situation("The job fails, and a retry is left", "starts the retry", *("ended", "runs"))
def _(stage: Stage) -> None:
    first = Instance(retries=1)
    waits, trigger = stage.defers(first, retries=1, script="exit 3")
    event = trigger.event()
    with pytest.raises(ERRORS.AirflowException):
        resume(
            operator("exit 3", retries=1),
            first,
            waits.method_name,
            {**waits.kwargs, "event": event},
        )
    stage.defers(Instance(before=first), retries=1)


@situation(
    "A waiting worker receives SIGTERM, a retry is left",
    "calls `on_kill` of the operator; starts the retry",
    "adopted",
)
def _(stage: Stage) -> None:
    first = Instance(retries=1)
    stage.waits_until_sigterm(first, retries=1)
    stage.defers(Instance(before=first), retries=1)


@situation(
    "A waiting worker receives SIGTERM in the last try",
    "calls `on_kill` of the operator",
    "deleted",
)
def _(stage: Stage) -> None:
    stage.waits_until_sigterm(Instance())


@situation(
    "A scheduler is late, and another one resets the task of a waiting worker; no retry is left",
    "calls `on_kill` of the operator; starts the next try",
    "adopted",
    words="continues, and the next try adopts it",
)
def _(stage: Stage) -> None:
    first = Instance()
    stage.waits_until_sigterm(first, marked="scheduled")
    stage.defers(Instance(before=first))


@situation(
    "A scheduler is late, and another one resets the task while its worker reports a success",
    "rejects the success; starts the next try",
    "ended",
    words="gives its result to the next try: nothing is trained twice",
)
def _(stage: Stage) -> None:
    kept = {"script": "true", "lifecycle": Lifecycle(on_finish="keep")}
    first = Instance()
    waits, trigger = stage.defers(first, **kept)
    event = trigger.event()
    stage.mark("scheduled")
    task = operator("true", lifecycle=Lifecycle(on_finish="keep"))
    resume(task, first, waits.method_name, {**waits.kwargs, "event": event})
    execute(operator("true", lifecycle=Lifecycle(on_finish="keep")), Instance(before=first))


@situation(
    "The job succeeds after the execution timeout has expired, before the worker acts",
    "nothing",
    "deleted",
    words="is a success: deleted as after every success",
)
def _(stage: Stage) -> None:
    first = Instance()
    limit = timedelta(seconds=1)
    waits, trigger = stage.defers(first, script="sleep 4", execution_timeout=limit)
    event = trigger.event()
    assert event["verdict"] == "timed out"
    stage.operated.ended()
    stage.mark("success")
    task = operator("sleep 4", execution_timeout=limit)
    resume(task, first, waits.method_name, {**waits.kwargs, "event": event})


@situation(
    "The task of a waiting worker is marked failed or cleared",
    "calls `on_kill` of the operator; the task is not running",
    "deleted",
)
def _(stage: Stage) -> None:
    stage.waits_until_sigterm(Instance(retries=1), marked="failed", retries=1)


@situation(
    "Another Airflow with the same DAG sweeps the same namespace",
    "runs the sweeper of the other Airflow, which does not know this task",
    "runs",
)
def _(stage: Stage) -> None:
    stage.submit(Instance())
    stage.forget()
    stage.monkeypatch.setenv("AIRFLOW__KFTRAIN__INSTANCE", "another")
    stage.bystander()
    time.sleep(2)


@situation(
    "Another Airflow with the same DAG has its task marked failed",
    "calls `on_kill` in the other Airflow",
    *("runs", "deleted"),
    words="continues; that of the other Airflow is deleted",
)
def _(stage: Stage) -> None:
    stage.submit(Instance())
    stage.monkeypatch.setenv("AIRFLOW__KFTRAIN__INSTANCE", "another")
    _, trigger = stage.defers(Instance())
    stage.mark("failed")
    trigger.cancel(told=True)


@situation(
    "The task does not wait for its job (`wait_for_completion=False`), and has ended",
    "nothing",
    "runs",
)
def _(stage: Stage) -> None:
    first = Instance()
    execute(operator(FOR_EVER, wait_for_completion=False), first)
    stage._remember(first)
    stage.mark("success")
    stage.bystander()
    time.sleep(2)


@situation(
    "Airflow before 3.3: the task is marked failed", "calls `cleanup`, as at every end", "deleted"
)
def _(stage: Stage) -> None:
    _before_3_3(stage)
    _, trigger = stage.defers(Instance())
    stage.mark("failed")
    trigger.cancel(told=True)


@situation(
    "Airflow before 3.3: the triggerer is stopped", "calls `cleanup`; the task is deferred", "runs"
)
def _(stage: Stage) -> None:
    _before_3_3(stage)
    stage.defers(Instance())
    stage._triggerers[0].stop()


@situation(
    "Airflow before 3.3: the task is cleared, and runs again at once",
    "calls `execute` of the new try, then `cleanup` of the old one",
    *("deleted", "runs"),
)
def _(stage: Stage) -> None:
    _before_3_3(stage)
    first = Instance()
    _, old = stage.defers(first)
    stage.defers(clear(first))
    old.cancel(told=True)


@situation(
    "Airflow before 3.3: the task was deferred for too long",
    "calls `cleanup`, and `resume_execution` of the operator",
    "deleted",
)
def _(stage: Stage) -> None:
    _before_3_3(stage)
    _deferred_too_long(stage)


def _before_3_3(stage: Stage) -> None:
    stage.tells_of_kills = False
    stage.monkeypatch.setattr(
        "airflow_kftrain.triggers.training_job.has_trigger_on_kill", lambda: False
    )


# ----- running them


@pytest.fixture(scope="module")
def target() -> Iterator[LocalTarget]:
    with LocalTarget() as target:
        yield target


@pytest.fixture
def stage(target: LocalTarget, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    world = World(target, f"k-{secrets.token_hex(4)}")
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": world.namespace}}
    target.api.create(namespace).required("a namespace")
    made = Stage(Operated(world, monkeypatch), monkeypatch)
    monkeypatch.setattr(RuntimeTaskInstance, "get_task_states", staticmethod(made.look_up))
    # Minutes in reality.
    hasty = functools.partial(Sweeper, grace=timedelta(0), pause=0.2)
    monkeypatch.setattr("airflow_kftrain.watching.feeds.Sweeper", hasty)
    monkeypatch.setattr(ending, "_PAUSE", 0.2)
    yield made
    made.close()
    target.api.delete(namespace)


@pytest.mark.parametrize("case", SITUATIONS, ids=lambda case: case.happens)
def test_what_becomes_of_a_job(stage: Stage, case: Situation) -> None:
    case.play(stage)
    assert stage.fates() == case.fates
    time.sleep(0.5)  # anything that was still going to happen
    assert stage.fates() == case.fates


def test_the_table_of_the_page_is_these_situations() -> None:
    rows = [f"| {case.happens} | {case.calls} | {case.words} |" for case in SITUATIONS]
    assert "\n".join(rows) in PAGE.read_text(encoding="utf-8")
