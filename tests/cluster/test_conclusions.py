"""Conclusions"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.cncf.kubernetes.hooks.kubernetes import AsyncKubernetesHook
from airflow.sdk._shared.secrets_masker import reset_secrets_masker
from airflow.sdk.log import mask_secret

from airflow_kftrain import Lifecycle, Links, Pod, RunPolicy
from airflow_kftrain.airflow_compat import exceptions
from airflow_kftrain.hooks import training_job_async
from airflow_kftrain.job_state import Phase
from airflow_kftrain.messages import Outcome
from airflow_kftrain.monitoring.decisions import Verdict
from airflow_kftrain.operators.cleanup import Cleanup
from airflow_kftrain.operators.training_job import BaseTrainingJobOperator
from airflow_kftrain.ownership import read_claim
from airflow_kftrain.watching.evidence import Evidence
from airflow_kftrain.watching.pods import PodStore
from kftrain_local.faults.command import Fault, FaultProxy, running
from tests.cluster.jobs import until_a_file
from tests.cluster.operated import (
    Instance,
    Operated,
    airflow_says,
    deferring,
    event_of,
    execute,
    operator,
    resume,
)
from tests.cluster.v1 import FOR_EVER
from tests.cluster.world import World, eventually

RESULT = "echo '{\"loss\": 0.5}' > $KFTRAIN_RESULT_FILE"
LATER = f"sleep 2; {RESULT}"
ERRORS = exceptions()
QUICK = Pod(patch={"spec": {"terminationGracePeriodSeconds": 1}})
KEEP = Lifecycle(on_finish="keep")
TIMED_OUT = Outcome(
    Verdict.TIMED_OUT, "DeadlineExceeded", "The execution timeout is up.", phase=Phase.RUNNING
).to_dict()


@pytest.fixture
def operated(world: World, monkeypatch: pytest.MonkeyPatch) -> Operated:
    return Operated(world, monkeypatch)


def resumed(
    task: BaseTrainingJobOperator, instance: Instance, waits: Any, event: dict[str, Any]
) -> Any:
    return resume(task, instance, waits.method_name, {**waits.kwargs, "event": event})


# Airflow has the last word on a success


@pytest.mark.parametrize("state", ["scheduled", "running", "failed", None])
@pytest.mark.parametrize("on_finish", ["delete", "keep"])
def test_a_success_that_airflow_does_not_take_is_left_to_the_next_try(
    operated: Operated, monkeypatch: pytest.MonkeyPatch, state: str | None, on_finish: str
) -> None:
    """A scheduler has reset the task meanwhile: its next try uses what was trained."""
    given: dict[str, Any] = {"lifecycle": Lifecycle(on_finish=on_finish)}
    first = Instance()
    airflow_says(monkeypatch, state)
    assert execute(operator(RESULT, **given), first) == {"loss": 0.5}
    claim = read_claim(operated.job())
    assert not claim.delivered
    assert not claim.terminating
    airflow_says(monkeypatch, "success")
    assert execute(operator(RESULT, **given), Instance(before=first)) == {"loss": 0.5}
    if on_finish == "keep":
        after = read_claim(operated.job())
        assert (after.uid, after.delivered) == (claim.uid, True)
    else:
        eventually(lambda: operated.jobs() == [], operated.jobs)


def test_callbacks_of_the_author_see_the_job_still(operated: Operated) -> None:
    seen: list[bool] = []
    task = operator(
        RESULT, on_success_callback=lambda _: seen.append(read_claim(operated.job()).terminating)
    )
    execute(task, Instance())
    assert seen == [False]
    eventually(lambda: operated.jobs() == [], operated.jobs)


@pytest.mark.parametrize("fails", ["push_link", "xcom_push"])
def test_no_link_fails_a_success(
    operated: Operated, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("Airflow does not answer")

    instance = Instance()
    links = Links(worker_logs="https://x/{pod}", dashboard="https://x/{job}")
    waits = deferring(operator(RESULT, links=links), instance)
    event = event_of(waits)
    if fails == "push_link":
        monkeypatch.setattr("airflow_kftrain.operators.showing.push_link", refuse)
    else:
        monkeypatch.setattr(instance, "xcom_push", refuse)
    assert resumed(operator(RESULT, links=links), instance, waits, event) == {"loss": 0.5}


# A worker that was told to stop


def test_a_worker_that_is_to_stop_leaves_a_job_that_has_failed_as_it_is(operated: Operated) -> None:
    instance = Instance()
    waits = deferring(operator("exit 3"), instance)
    event = event_of(waits)
    task = operator("exit 3", lifecycle=Lifecycle(on_finish="delete"))
    task.on_kill()
    with pytest.raises(ERRORS.AirflowException, match="exit code 3"):
        resumed(task, instance, waits, event)
    claim = read_claim(operated.job())
    assert not claim.delivered
    assert not claim.terminating


@pytest.mark.parametrize(
    ("state", "retries", "stays"),
    [
        ("scheduled", 0, True),
        ("queued", 0, True),
        ("up_for_retry", 1, True),
        ("running", 1, True),
        ("running", 0, False),
        ("failed", 1, False),
        ("success", 1, False),
        ("restarting", 1, False),
        (None, 0, False),
        (None, 1, True),
    ],
)
def test_a_worker_that_is_to_stop_asks_airflow_about_a_job_that_lives(
    operated: Operated,
    monkeypatch: pytest.MonkeyPatch,
    state: str | None,
    retries: int,
    stays: bool,
) -> None:
    """Its event says that the time is up. The task may run again although it has no retries: a
    scheduler that is late has its tasks reset by another one."""
    instance = Instance(retries=retries)
    waits = deferring(operator(FOR_EVER, pod=QUICK), instance)
    operated.runs()
    airflow_says(monkeypatch, state)
    task = operator(FOR_EVER, retries=retries, pod=QUICK)
    task.on_kill()
    with pytest.raises(ERRORS.AirflowException, match="is being stopped"):
        resumed(task, instance, waits, TIMED_OUT)
    if stays:
        assert not read_claim(operated.job()).terminating
    else:
        eventually(lambda: operated.jobs() == [], operated.jobs)


# What has happened counts before the clock


def test_a_job_that_succeeds_after_the_verdict_of_a_timeout_is_a_success(
    operated: Operated,
) -> None:
    instance = Instance()
    waits = deferring(operator(RESULT), instance)
    operated.ended()
    assert resumed(operator(RESULT), instance, waits, TIMED_OUT) == {"loss": 0.5}


def test_a_job_that_fails_after_the_verdict_of_a_timeout_says_why(operated: Operated) -> None:
    instance = Instance()
    waits = deferring(operator("echo no such file; exit 3", lifecycle=KEEP), instance)
    operated.ended()
    with pytest.raises(ERRORS.AirflowException, match="exit code 3"):
        resumed(operator("exit 3", lifecycle=KEEP), instance, waits, TIMED_OUT)
    assert read_claim(operated.job()).delivered


def test_a_job_that_succeeds_while_its_deletion_is_under_way_is_a_success(
    operated: Operated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The delete call names the version that was read, and that is older than the end."""
    instance = Instance()
    waits = deferring(operator(LATER), instance)
    before = operated.runs()
    operated.ended()
    monkeypatch.setattr(Cleanup, "find", lambda _: before)
    assert resumed(operator(LATER), instance, waits, TIMED_OUT) == {"loss": 0.5}


def test_a_success_whose_job_is_gone_stays_one(operated: Operated) -> None:
    instance = Instance()
    waits = deferring(operator(RESULT), instance)
    event = event_of(waits)
    path = operated.world.path("PyTorchJob", operated.job()["metadata"]["name"], "kubeflow.org/v1")
    operated.world.api.call("DELETE", path).required("the deletion")
    eventually(lambda: operated.jobs() == [], operated.jobs)
    assert resumed(operator(RESULT), instance, waits, event) == {"loss": 0.5}


# The event of another try


def test_a_retry_that_is_resumed_with_the_event_of_the_try_before_trains(
    operated: Operated,
) -> None:
    """Airflow 3.1.0 does so."""
    first = Instance(retries=1)
    waits = deferring(operator("exit 3", retries=1), first)
    event = event_of(waits)
    with pytest.raises(ERRORS.AirflowException):
        resumed(operator("exit 3", retries=1), first, waits, event)
    second = Instance(before=first)
    assert resumed(operator(RESULT, retries=1), second, waits, event) == {"loss": 0.5}


# The cost of an end


@pytest.mark.parametrize("script", [RESULT, "exit 3"], ids=["success", "failure"])
def test_a_worker_connects_once_to_end_a_task(
    operated: Operated, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    instance = Instance()
    waits = deferring(operator(script), instance)
    event = event_of(waits)
    connected: list[object] = []
    connect = training_job_async._connect

    async def counted(connection: str | None) -> Any:
        connected.append(connection)
        return await connect(connection)

    monkeypatch.setattr(training_job_async, "_connect", counted)
    try:
        resumed(operator(script), instance, waits, event)
    except ERRORS.AirflowException:
        assert script == "exit 3"
    assert len(connected) == 1


# SIGTERM while it submits


@contextmanager
def sigterm(task: BaseTrainingJobOperator, when: Any) -> Iterator[None]:
    """As Airflow does it: a signal whose handler calls on_kill."""
    former = signal.signal(signal.SIGTERM, lambda *_: task.on_kill())

    def kill() -> None:
        eventually(when, lambda: "the moment to kill the worker has not come")
        os.kill(os.getpid(), signal.SIGTERM)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        yield
    finally:
        killer.join()
        signal.signal(signal.SIGTERM, former)


@pytest.mark.parametrize(
    "fault",
    [
        Fault(verb="create", resource="pytorchjobs", code=503),
        Fault(verb="create", resource="pytorchjobs", code=429),
        Fault(verb="create", resource="pytorchjobs", delay=60),
        Fault(verb="create", resource="pytorchjobs", cut=0),
    ],
    ids=["503", "429", "no answer", "the answer is lost"],
)
@pytest.mark.parametrize("retries", [0, 1])
def test_a_worker_that_is_ended_while_it_submits_ends_in_time_and_leaves_no_job_to_nobody(
    operated: Operated, monkeypatch: pytest.MonkeyPatch, fault: Fault, retries: int
) -> None:
    """Airflow kills it after 5 seconds."""
    airflow_says(monkeypatch, "running")
    task = operator(FOR_EVER, pod=QUICK, retries=retries)
    with running(FaultProxy(operated.world.target.kubeconfig, fault)) as proxy:
        operated.connect(str(proxy.kubeconfig), monkeypatch)
        killed: list[datetime] = []

        def asked() -> bool:
            if proxy.calls["create", "pytorchjobs"] < 1:
                return False
            killed.append(datetime.now(timezone.utc))
            return True

        with (
            sigterm(task, asked),
            pytest.raises(ERRORS.AirflowException, match="is being stopped"),
        ):
            execute(task, Instance(retries=retries))
        seconds = (datetime.now(timezone.utc) - killed[0]).total_seconds()
    assert seconds < 5
    if retries and operated.jobs():
        assert not read_claim(operated.job()).terminating
    else:
        eventually(lambda: operated.jobs() == [], operated.jobs)


def test_a_task_that_was_ended_before_it_submits_makes_no_job(
    operated: Operated, monkeypatch: pytest.MonkeyPatch
) -> None:
    airflow_says(monkeypatch, "failed")
    task = operator(FOR_EVER)
    task.on_kill()
    with pytest.raises(ERRORS.AirflowException, match="is being stopped"):
        execute(task, Instance())
    assert operated.jobs() == []


def test_a_connection_is_read_to_its_end_before_sigterm_breaks_anything_off(
    operated: Operated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read from Airflow, whose later answers would otherwise all be those to the request
    before."""
    airflow_says(monkeypatch, "failed")
    task = operator(FOR_EVER)
    read, connected = AsyncKubernetesHook.get_conn_extras, []

    async def in_the_middle(hook: AsyncKubernetesHook) -> Any:
        task.on_kill()
        await asyncio.sleep(0.2)
        connected.append(await read(hook))
        return connected[-1]

    monkeypatch.setattr(AsyncKubernetesHook, "get_conn_extras", in_the_middle)
    with pytest.raises(ERRORS.AirflowException, match="is being stopped"):
        execute(task, Instance())
    assert len(connected) == 1
    assert operated.jobs() == []


@pytest.mark.parametrize("state", ["failed", "scheduled"])
def test_a_worker_that_is_ended_just_before_it_defers_does_not_defer(
    operated: Operated, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    airflow_says(monkeypatch, state)
    task = operator(FOR_EVER, deferrable=True, pod=QUICK)
    defer = task.defer

    def killed(**given: Any) -> None:
        task.on_kill()
        defer(**given)

    monkeypatch.setattr(task, "defer", killed)
    with pytest.raises(ERRORS.AirflowException, match="is being stopped"):
        execute(task, Instance())
    if state == "scheduled":
        assert not read_claim(operated.job()).terminating
    else:
        eventually(lambda: operated.jobs() == [], operated.jobs)


# Airflow's timeout, and SIGTERM, in the middle of an end


def ringing_once(monkeypatch: pytest.MonkeyPatch, method: str, ring: Any) -> None:
    """In the middle of that call of the cleanup."""
    original = getattr(Cleanup, method)
    rung: list[bool] = []

    def interrupted(self: Cleanup, *given: Any) -> Any:
        if not rung:
            rung.append(True)
            ring()
        return original(self, *given)

    monkeypatch.setattr(Cleanup, method, interrupted)


def alarm() -> None:
    raise ERRORS.AirflowTaskTimeout("Timeout, Airflow's own")


def test_the_alarm_does_not_undo_a_success(
    operated: Operated, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = Instance()
    waits = deferring(operator(RESULT), instance)
    event = event_of(waits)
    ringing_once(monkeypatch, "find", alarm)
    assert resumed(operator(RESULT), instance, waits, event) == {"loss": 0.5}


@pytest.mark.parametrize("where", ["find", "end"])
def test_the_alarm_leaves_no_job_that_lives(
    operated: Operated, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    instance = Instance()
    waits = deferring(operator(FOR_EVER, pod=QUICK), instance)
    operated.runs()
    ringing_once(monkeypatch, where, alarm)
    with pytest.raises(ERRORS.AirflowTaskTimeout, match="The execution timeout is up"):
        resumed(operator(FOR_EVER, pod=QUICK), instance, waits, TIMED_OUT)
    eventually(lambda: operated.jobs() == [], operated.jobs)


def test_sigterm_does_not_make_a_timeout_of_a_job_that_has_succeeded(
    operated: Operated, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = Instance()
    waits = deferring(operator(RESULT), instance)
    operated.ended()
    task = operator(RESULT)
    ringing_once(monkeypatch, "find", task.on_kill)
    assert resumed(task, instance, waits, TIMED_OUT) == {"loss": 0.5}


def test_a_success_of_which_nothing_is_left_to_read_is_one(
    operated: Operated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its TTL removes it between two reads."""
    instance = Instance()
    waits = deferring(operator(RESULT), instance)
    operated.ended()

    def gone() -> None:
        name = operated.job()["metadata"]["name"]
        path = operated.world.path("PyTorchJob", name, "kubeflow.org/v1")
        operated.world.api.call("DELETE", path).required("the deletion")
        eventually(lambda: operated.jobs() == [], operated.jobs)

    succeeded = operated.job()
    gone()
    monkeypatch.setattr(Cleanup, "find", lambda _: succeeded)
    assert resumed(operator(RESULT), instance, waits, TIMED_OUT) is None


# Secrets that the process which ends the task has not read


def test_a_worker_that_looks_again_masks_what_another_worker_masked(
    operated: Operated, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = "hunter2-is-long"
    mask_secret(secret)
    instance = Instance()
    script = "echo tok $TOK; exit 3"
    waits = deferring(operator(script, env={"TOK": secret}), instance)
    operated.ended()
    reset_secrets_masker()  # another process
    capsys.readouterr()
    with pytest.raises(ERRORS.AirflowException) as caught:
        resumed(operator(script), instance, waits, TIMED_OUT)
    told = capsys.readouterr().out
    assert "tok ***" in told
    assert secret not in f"{told}{caught.value}"


def test_the_kept_log_of_a_pod_that_is_gone_is_quoted_masked(
    operated: Operated, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mask_secret("hunter2-is-long")
    gather, complete, go = Evidence._gather, PodStore.complete, tmp_path / "go"

    def listed(self: PodStore) -> None:
        complete(self)
        go.touch()

    def gone(evidence: Evidence) -> None:
        eventually(lambda: any(evidence.memory.logs.values()), lambda: "no log is kept")
        world = operated.world
        for pod in world.names("Pod"):
            world.api.call("DELETE", world.path("Pod", pod), {"gracePeriodSeconds": 0})
        eventually(lambda: world.names("Pod") == [], lambda: "there are pods")

    async def when_the_pods_are_gone(self: Evidence, verdict: Verdict) -> None:
        await asyncio.to_thread(gone, self)
        await gather(self, verdict)

    monkeypatch.setattr(PodStore, "complete", listed)
    monkeypatch.setattr(Evidence, "_gather", when_the_pods_are_gone)
    task = operator(
        f"{until_a_file(go)}; echo the reason is $TOK; echo {{}} > $KFTRAIN_RESULT_FILE; exit 3",
        env={"TOK": "hunter2-is-long"},
        run_policy=RunPolicy(clean_pods="None"),
    )
    event = event_of(deferring(task, Instance()))
    reset_secrets_masker()
    assert "the reason is ***" in event["report"]
