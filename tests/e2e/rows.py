"""The fault matrix: each row is one task, a fault, and how the task has to end."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from typing import Any

from kftrain_local.api_client import core
from kftrain_local.faults.rules import Fault
from tests.e2e.play import Play, Row
from tests.e2e.stage import until
from tests.e2e.system_retry_rows import SYSTEM_RETRY_ROWS

Story = Callable[[Play], Awaitable[None]]

# ----- no fault


async def nothing(play: Play) -> None:
    await play.deferred()
    play.go()


async def ends_at_once(play: Play) -> None:
    play.go()
    await play.trigger()


async def many(play: Play) -> None:
    await play.trigger()
    play.go()


# ----- workers


async def dies(play: Play) -> None:
    """By itself: the DAG file says where."""
    await play.trigger()
    await play.trains()
    play.go()


async def dies_before(play: Play) -> None:
    await play.trigger()
    play.go()


async def dies_for_good(play: Play) -> None:
    await play.trigger()
    if play.row.trainings:
        await play.trains()


async def waits_and_sigterm(play: Play) -> None:
    await play.trigger()
    await play.trains()
    await play.until("running")
    await play.send(signal.SIGTERM)
    if play.row.state == "success":
        await play.worker(2)
        play.go()


async def clear_while_waiting(play: Play) -> None:
    await play.trigger()
    await play.trains()
    await play.until("running")
    await play.clear()
    await play.trains(2)
    play.go()


async def mark_failed_while_waiting(play: Play) -> None:
    await play.trigger()
    await play.trains()
    await play.until("running")
    await play.set_state("failed")


# ----- people


async def marked_at_once(play: Play) -> None:
    await play.submitted()
    await play.set_state("failed")


def marked(state: str) -> Story:
    async def mark(play: Play) -> None:
        await play.deferred()
        await play.set_state(state)

    return mark


async def clear(play: Play) -> None:
    await play.deferred()
    await play.clear()
    await play.trains(2)
    await play.until("deferred", attempt=2)
    play.go()


async def retry(play: Play) -> None:
    play.go(1, attempt=1)
    await play.trigger()
    await play.trains(2)
    play.go()


async def retry_of_another(play: Play) -> None:
    """The worker dies between submit and defer; by then the DAG file has been replaced."""
    await play.trigger()
    await play.trains()
    play.stage.tasks[play.dag]["args"] = ["changed"]
    play.stage.write_tasks()
    task, _ = await play.worker()
    os.kill(task, signal.SIGKILL)
    await play.trains(2)
    play.go()


async def times_out(play: Play) -> None:
    """The timeout is long enough for the training to start, even on a slow machine."""
    await play.trigger()
    await play.trains()


async def made_again(play: Play) -> None:
    await play.deferred()
    await play.remove_run()
    await play.until_gone()
    await play.trigger()
    await play.trains(2)
    await play.until("deferred")
    play.go()


# ----- the API of the cluster


async def watch_cut(play: Play) -> None:
    await play.deferred()
    for _ in range(5):
        play.proxy.cut()
        await asyncio.sleep(0.5)
    play.go()


async def watch_expired(play: Play) -> None:
    await play.deferred()
    for _ in range(3):
        play.proxy.expire()
        await asyncio.sleep(0.5)
    play.go()


async def slow(play: Play) -> None:
    play.proxy.add(Fault(delay=2.0))
    await play.deferred()
    play.go()


async def away(play: Play) -> None:
    """The training ends in the meantime."""
    await play.deferred()
    play.proxy.away(60)
    play.go()


async def away_at_submit(play: Play) -> None:
    play.proxy.away(60)
    await play.trigger()
    await play.trains()
    play.go()


async def away_at_kill(play: Play) -> None:
    await play.deferred()
    play.proxy.away()
    await play.set_state("failed")
    # Longer than Airflow gives a trigger to end its job.
    await asyncio.sleep(32)
    play.proxy.back()


def answering(code: int) -> Story:
    async def refused(play: Play) -> None:
        """All calls are rejected for 15 s; the training ends in this time. It starts before the
        trigger has learned anything, or afterwards."""
        await play.submitted()
        fault = play.proxy.add(Fault(code=code))
        play.proxy.cut()
        await asyncio.sleep(7)
        play.go()
        await asyncio.sleep(8)
        play.proxy.remove(fault)

    return refused


def refusing_create(code: int) -> Story:
    async def refused(play: Play) -> None:
        play.proxy.add(Fault(verb="create", resource="pytorchjobs", code=code, times=2))
        await play.trigger()
        await play.trains()
        play.go()

    return refused


async def forbidden_to_create(play: Play) -> None:
    play.proxy.add(Fault(verb="create", resource="pytorchjobs", code=403))
    await play.trigger()


async def answer_lost(play: Play) -> None:
    """The server creates the job, and the client does not learn it."""
    play.proxy.add(Fault(verb="create", resource="pytorchjobs", cut=0, times=1))
    await play.deferred()
    play.go()


async def watch_forbidden(play: Play) -> None:
    play.proxy.add(Fault(verb="watch", code=403))
    await play.deferred()
    play.go()


# ----- jobs and pods


async def job_deleted(play: Play) -> None:
    await play.deferred()
    await play.delete_job()
    if play.row.state == "success":
        await play.trains(2)
        play.go()


async def pod_killed(play: Play) -> None:
    """The kernel kills the process of the leader."""
    await play.deferred()
    pid = int(next(play.folder.glob("[!w]*.log")).read_text().split()[1])
    os.kill(pid, signal.SIGKILL)
    await play.trains(2)
    play.go()


async def pod_deleted(play: Play) -> None:
    """It ends by SIGTERM, which makes its job fail."""
    await play.deferred()
    name = next(
        pod["metadata"]["name"]
        for pod in await play.pods()
        if pod["metadata"]["name"].endswith("-master-0")
    )
    await play.stage.api.delete(core(play.namespace, "pods", name))
    await play.trains(2)
    play.go()


def pods_lost(reason: str) -> Story:
    async def lost(play: Play) -> None:
        """What the cluster writes when it has removed the leader's pod from its node."""
        await play.deferred()
        for pod in await play.pods():
            if "-master-" in pod["metadata"]["name"]:
                await _fail(play, pod, reason)
        await play.trains(2)
        play.go()

    return lost


async def _fail(play: Play, pod: dict[str, Any], reason: str) -> None:
    pid = int(next(play.folder.glob("[!w]*.log")).read_text().split()[1])
    status = {"phase": "Failed", "reason": reason, "message": f"{reason}, says the test"}
    path = core(play.namespace, "pods", pod["metadata"]["name"], "status")
    os.kill(pid, signal.SIGSTOP)  # so that its end is not reported before
    await play.stage.api.merge_patch(path, {"status": status})
    os.kill(pid, signal.SIGKILL)


# ----- parts of Airflow


async def meets(play: Play) -> None:
    await play.deferred()
    await play.meet("begin")
    await play.meet("end")
    play.go()


async def ends_meanwhile(play: Play) -> None:
    await play.deferred()
    await play.meet("begin")
    play.go()
    await play.meet("end")


async def marked_meanwhile(play: Play) -> None:
    await play.deferred()
    await play.meet("begin")
    await play.set_state("failed")
    await play.until("failed")
    await play.meet("end")


async def cleared_meanwhile(play: Play) -> None:
    await play.deferred()
    await play.meet("begin")
    await play.clear()
    await play.trains(2)
    await play.meet("end")
    play.go()


async def removed_meanwhile(play: Play) -> None:
    """The run is deleted and created again."""
    await play.deferred()
    await play.meet("begin")
    await play.remove_run()
    await play.trigger()
    await play.until("deferred")
    await play.meet("end")
    play.go()


async def waits_meanwhile(play: Play) -> None:
    await play.trigger()
    await play.trains()
    await play.until("running")
    await play.meet("begin")
    await play.meet("end")
    await play.worker(2)
    play.go()


async def two_airflows(play: Play) -> None:
    await play.meet("begin")
    second = play.stage.second
    assert second is not None
    await play.deferred()
    await second.post(f"dags/{play.dag}/dagRuns", {"dag_run_id": play.run, "logical_date": None})
    await play.trains(2)
    await play.set_state("failed")
    await until(lambda: play.seen().alive == 1, "the first training is ended")
    play.go()

    async def state() -> bool:
        found = await second.get(f"{play.path}/taskInstances/train")
        assert found["state"] != "failed"
        return bool(found["state"] == "success")

    await until(state, "the task of the second Airflow succeeds")


# ----- the table

_RETRY = {"retries": 1}
_WAITS = {"deferrable": False}

ROWS = (
    Row("No fault", "The training ends by itself.", nothing),
    Row("Short job", "The training ends before the worker has deferred.", ends_at_once),
    Row(
        "Event before the worker's exit is seen",
        "After the deferral the worker lives for 3 s more; the training ends before it exits.",
        ends_at_once,
        task={"linger": 3},
    ),
    Row(
        "Event long before the worker's exit is seen, a retry left",
        "The worker lives until the task has resumed on another one: Airflow fails the try, and "
        "the retry adopts the finished job.",
        ends_at_once,
        task={**_RETRY, "linger": 300, "trouble": "hold at the event"},
    ),
    Row(
        "50 mapped jobs",
        "One task, expanded to 50 jobs at the same time.",
        many,
        trainings=50,
        task={"mapped": 50},
        group="many",
    ),
    # workers
    *(
        row
        for how, who in (("crash", "The process of the task"), ("kill", "The worker's machine"))
        for row in (
            Row(
                f"Worker {how}ed before submit, a retry left",
                f"{who} is killed before it has created the job.",
                dies_before,
                task={**_RETRY, "trouble": f"{how} before submit"},
            ),
            Row(
                f"Worker {how}ed before submit, no retry left",
                f"{who} is killed before it has created the job.",
                dies_for_good,
                state="failed",
                trainings=0,
                task={"trouble": f"{how} before submit"},
            ),
            Row(
                f"Worker {how}ed between submit and defer, a retry left",
                f"{who} is killed after it has created the job, while the task is still running; "
                "the retry adopts the job.",
                dies,
                task={**_RETRY, "trouble": f"{how} before defer"},
            ),
            Row(
                f"Worker {how}ed between submit and defer, no retry left",
                f"{who} is killed after it has created the job, while the task is still running.",
                dies_for_good,
                state="failed",
                killed=1,
                swept=True,
                task={"trouble": f"{how} before defer"},
            ),
            Row(
                f"Worker {how}ed at the event, a retry left",
                f"{who} is killed when the task has resumed with the event; the retry adopts the "
                "finished job.",
                dies,
                task={**_RETRY, "trouble": f"{how} at the event"},
            ),
            Row(
                f"Worker {how}ed at the event, no retry left",
                f"{who} is killed when the task has resumed with the event.",
                dies,
                state="failed",
                task={"trouble": f"{how} at the event"},
            ),
        )
    ),
    Row(
        "Waiting worker SIGTERMed, a retry left",
        "A worker that waits for its job receives SIGTERM; the retry adopts the job.",
        waits_and_sigterm,
        task={**_WAITS, **_RETRY},
    ),
    Row(
        "Waiting worker SIGTERMed, no retry left",
        "A worker that waits for its job receives SIGTERM.",
        waits_and_sigterm,
        state="failed",
        killed=1,
        task=_WAITS,
    ),
    # people and clocks
    Row("Marked failed", "The deferred task is marked failed.", marked("failed"), "failed", 1, 1),
    Row(
        "Marked failed, retries left",
        "The deferred task is marked failed.",
        marked("failed"),
        "failed",
        1,
        1,
        task=_RETRY,
    ),
    Row(
        "Marked failed as soon as it is deferred",
        "Possibly before its trigger runs, so the trigger does not learn of it.",
        marked_at_once,
        "failed",
        1,
        1,
        swept=True,
    ),
    Row("Marked success", "The deferred task is marked success.", marked("success"), killed=1),
    Row(
        "Marked failed while waiting",
        "The task is marked failed while its worker waits.",
        mark_failed_while_waiting,
        "failed",
        1,
        1,
        task=_WAITS,
    ),
    Row("Cleared", "The deferred task is cleared and runs again at once.", clear, "success", 2, 1),
    Row(
        "Cleared while waiting",
        "The task is cleared while its worker waits.",
        clear_while_waiting,
        "success",
        2,
        1,
        task=_WAITS,
    ),
    Row("Retry", "The first training fails.", retry, trainings=2, task=_RETRY),
    Row(
        "Retry after the DAG was changed",
        "The worker dies between submit and defer; before the retry the DAG is changed to another "
        "job.",
        retry_of_another,
        "success",
        2,
        1,
        task={**_RETRY, "trouble": "hold before defer"},
    ),
    Row(
        "DAG run timeout",
        "dagrun_timeout expires while the task is deferred.",
        times_out,
        "skipped",
        1,
        1,
        task={"dagrun_timeout": 90},
    ),
    Row(
        "Execution timeout",
        "execution_timeout expires while the task is deferred.",
        times_out,
        "failed",
        1,
        1,
        task={"execution_timeout": 60},
    ),
    Row(
        "Execution timeout while waiting",
        "execution_timeout expires while the worker waits.",
        times_out,
        "failed",
        1,
        1,
        task={"execution_timeout": 60, **_WAITS},
    ),
    Row(
        "Deferral timeout",
        "Airflow resumes the task because it was deferred for too long.",
        times_out,
        "failed",
        1,
        1,
        task={"trouble": "short deferral"},
    ),
    Row(
        "DAG run deleted and made again",
        "While the task is deferred, its run is failed and deleted; the new run has the same id.",
        made_again,
        "success",
        2,
        1,
    ),
    # the API of the cluster
    Row("Watch cut", "All watches are cut, five times.", watch_cut, own_proxy=True),
    Row("Watch expired", "All watches expire, three times.", watch_expired, own_proxy=True),
    Row("Watch forbidden", "All watches get a 403, always.", watch_forbidden, own_proxy=True),
    Row("API server slow", "Each response takes 2 s.", slow, own_proxy=True),
    Row(
        "API server away",
        "Unreachable for 60 s while the task is deferred; the training ends in this time.",
        away,
        own_proxy=True,
    ),
    Row(
        "API server away at submit",
        "Unreachable for 60 s; Airflow retries every 15 s.",
        away_at_submit,
        own_proxy=True,
        task={"retries": 5, "retry_delay": 15},
    ),
    Row(
        "API server away during on_kill",
        "The deferred task is marked failed while the API server is unreachable for 32 s.",
        away_at_kill,
        "failed",
        1,
        1,
        swept=True,
        own_proxy=True,
    ),
    *(
        Row(
            f"API server answers {code}",
            f"All calls get a {code} for 15 s while the task is deferred; the training ends in "
            "this time.",
            answering(code),
            own_proxy=True,
        )
        for code in (401, 403, 429, 500, 503)
    ),
    *(
        Row(
            f"API server answers {code} to the create",
            f"The first two attempts to create the job get a {code}.",
            refusing_create(code),
            own_proxy=True,
            task=_RETRY,
        )
        for code in (401, 429, 500, 503)
    ),
    Row(
        "API server answers 403 to the create",
        "All attempts get a 403: the task fails at once, although it has retries left.",
        forbidden_to_create,
        "failed",
        0,
        own_proxy=True,
        task={"retries": 3},
    ),
    Row(
        "The answer to the create is lost",
        "The API server creates the job, and the connection is closed before the response.",
        answer_lost,
        own_proxy=True,
    ),
    # jobs and pods
    Row(
        "Job deleted by hand, a retry left",
        "The job of a deferred task is deleted.",
        job_deleted,
        "success",
        2,
        1,
        task=_RETRY,
    ),
    Row(
        "Job deleted by hand, no retry left",
        "The job of a deferred task is deleted.",
        job_deleted,
        "failed",
        1,
        1,
    ),
    Row(
        "Job deleted by its TTL",
        "The job has a TTL of 0 s and is deleted as soon as it has ended.",
        nothing,
        task={"ttl": 0, "on_finish": "keep"},
    ),
    Row(
        "Pod killed",
        "The leader's process receives SIGKILL; the retry creates a new job.",
        pod_killed,
        "success",
        2,
        1,
        task={**_RETRY, "workers": 1},
    ),
    Row(
        "Pod deleted",
        "The leader's pod is deleted by hand; the retry creates a new job.",
        pod_deleted,
        "success",
        2,
        1,
        task={**_RETRY, "workers": 1},
    ),
    Row(
        "Pod evicted",
        "The leader's pod is evicted; the retry creates a new job.",
        pods_lost("Evicted"),
        "success",
        2,
        1,
        task={**_RETRY, "workers": 1},
    ),
    Row(
        "Node gone",
        "The cluster fails the leader's pod since its node is lost; the retry creates a new job.",
        pods_lost("NodeLost"),
        "success",
        2,
        1,
        task={**_RETRY, "workers": 1},
    ),
    *SYSTEM_RETRY_ROWS,
    # parts of Airflow
    Row("Triggerer SIGTERM", "SIGTERM, then started again.", meets, group="sigterm"),
    Row(
        "Triggerer SIGTERM, training ends meanwhile",
        "SIGTERM, then started again.",
        ends_meanwhile,
        group="sigterm",
    ),
    Row("Triggerer SIGKILL", "SIGKILL, then started again.", meets, group="sigkill"),
    Row(
        "Triggerer SIGKILL, training ends meanwhile",
        "SIGKILL, then started again.",
        ends_meanwhile,
        group="sigkill",
    ),
    Row(
        "Marked failed while no triggerer lives",
        "No trigger learns of it; the job is swept when the triggerer runs again and the next job "
        "is started.",
        marked_meanwhile,
        "failed",
        1,
        1,
        swept=True,
        group="sigkill",
    ),
    Row(
        "Cleared while no triggerer lives",
        "The next try deletes the job and creates another one.",
        cleared_meanwhile,
        "success",
        2,
        1,
        group="sigkill",
    ),
    Row(
        "DAG run deleted and made again while no triggerer lives",
        "The new run has the same id, asks for the same, and adopts the job.",
        removed_meanwhile,
        group="sigkill",
    ),
    Row(
        "Two Airflows in one namespace",
        "Both have the same DAG and run; in the first Airflow the task is marked failed, in the "
        "second one it succeeds.",
        two_airflows,
        "failed",
        2,
        1,
        group="two",
    ),
    Row(
        "Triggerer SIGSTOP for 28 s, reassigned",
        "A second triggerer takes over; then the first one resumes.",
        meets,
        group="sigstop",
    ),
    Row(
        "Triggerer SIGSTOP for 28 s, training ends meanwhile",
        "A second triggerer takes over; then the first one resumes.",
        ends_meanwhile,
        group="sigstop",
    ),
    Row(
        "Triggerer SIGSTOP for 28 s, marked failed meanwhile",
        "A second triggerer takes over; then the first one resumes.",
        marked_meanwhile,
        "failed",
        1,
        1,
        swept=True,
        group="sigstop",
    ),
    Row("Scheduler restarted", "SIGTERM, then started again.", meets, group="scheduler"),
    Row(
        "Scheduler killed with its workers, task deferred",
        "SIGKILL, then started again.",
        meets,
        group="scheduler killed",
    ),
    Row(
        "Scheduler killed with its workers, worker waits",
        "SIGKILL, then started again; the retry adopts the job.",
        waits_meanwhile,
        group="scheduler killed",
        task={**_WAITS, **_RETRY},
    ),
)

GATES = frozenset(
    {
        "No fault",
        "Short job",
        "Event before the worker's exit is seen",
        "50 mapped jobs",
        "Worker killed between submit and defer, a retry left",
        "Worker crashed at the event, a retry left",
        "Waiting worker SIGTERMed, no retry left",
        "Marked failed",
        "Cleared",
        "Execution timeout",
        "API server away",
        "The answer to the create is lost",
        "System retry: preempted",
        "Job deleted by hand, a retry left",
        "Triggerer SIGKILL, training ends meanwhile",
        "Marked failed while no triggerer lives",
    }
)
"""The rows that every change has to pass: one or two of a kind. The others run on request."""


CANNOT_HOLD = (
    (
        "The worker outlives its event, no retry left",
        "Airflow takes the exit of the worker that deferred for that of the resumed task, and "
        "fails the task. The event waits until the worker has stored the links of the task. Then "
        "it waits for 1 or 2 s, longer if the trigger started late, the links came late or many "
        "events are held back, 2 minutes at most. If the worker needs longer to exit, only a retry "
        "helps: it adopts the finished job.",
    ),
    (
        "A job that ends and is deleted, by its TTL or by hand, while no triggerer runs",
        "Nothing records how it ended: the task fails, or its retry creates a new job. The same "
        "happens with a TTL of 0 s if the job ends before its trigger runs. The default TTL is a "
        "day.",
    ),
    (
        "An orphan in a namespace in which no more jobs are started",
        "The sweeper works only where a triggerer watches. `airflow-kftrain sweep` works "
        "everywhere, and the job's deadline and TTL still apply.",
    ),
)
"""Rows that are not played: what is done, and why our code cannot fix it."""
