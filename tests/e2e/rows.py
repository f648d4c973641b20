"""The fault matrix: each row one task, what befalls it, and how it has to end."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from typing import Any

from airflow_kftrain.local.api_client import core
from airflow_kftrain.local.faults.rules import Fault
from tests.e2e.play import Play, Row
from tests.e2e.stage import until

Story = Callable[[Play], Awaitable[None]]

# ----- nothing befalls it


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
    """The worker dies between submit and defer; when it does, the DAG file is another already."""
    await play.trigger()
    await play.trains()
    play.stage.tasks[play.dag]["args"] = ["changed"]
    play.stage.write_tasks()
    task, _ = await play.worker()
    os.kill(task, signal.SIGKILL)
    await play.trains(2)
    play.go()


async def times_out(play: Play) -> None:
    """Its time is long enough for the training to begin, also on a slow machine."""
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


# ----- the cluster's API


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
    """The training ends meanwhile."""
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
        """Everything, for 15 s; the training ends in the middle of it. It begins before the
        trigger has learned anything, or after."""
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
    """The server has made the job, and the client does not learn it."""
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
    """The process of the leader, as the kernel ends it."""
    await play.deferred()
    pid = int(next(play.folder.glob("[!w]*.log")).read_text().split()[1])
    os.kill(pid, signal.SIGKILL)
    await play.trains(2)
    play.go()


async def pod_deleted(play: Play) -> None:
    """It ends by SIGTERM, with which its job fails."""
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
        """What the cluster writes when it has taken the leader's pod off its node."""
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
    os.kill(pid, signal.SIGSTOP)  # so that its end is not told before
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
    """The run is deleted and made again."""
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
    Row("Nothing", "The training ends by itself.", nothing),
    Row("Short job", "The training is over before the worker has deferred.", ends_at_once),
    Row(
        "Event before the worker's exit is seen",
        "The worker lives for 3 s more once the task is deferred; the training is over by then.",
        ends_at_once,
        task={"linger": 3},
    ),
    Row(
        "Event long before the worker's exit is seen, a retry left",
        "The worker lives until that which goes on has begun: Airflow fails the try, and the "
        "retry takes what was trained.",
        ends_at_once,
        task={**_RETRY, "linger": 300, "trouble": "hold at the event"},
    ),
    Row(
        "50 mapped jobs",
        "One task, expanded to 50 jobs at once.",
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
                f"{who} is killed before it has made the job.",
                dies_before,
                task={**_RETRY, "trouble": f"{how} before submit"},
            ),
            Row(
                f"Worker {how}ed before submit, no retry left",
                f"{who} is killed before it has made the job.",
                dies_for_good,
                state="failed",
                trainings=0,
                task={"trouble": f"{how} before submit"},
            ),
            Row(
                f"Worker {how}ed between submit and defer, a retry left",
                f"{who} is killed when the job is made and the task runs still; the retry goes on "
                "with the job.",
                dies,
                task={**_RETRY, "trouble": f"{how} before defer"},
            ),
            Row(
                f"Worker {how}ed between submit and defer, no retry left",
                f"{who} is killed when the job is made and the task runs still.",
                dies_for_good,
                state="failed",
                killed=1,
                swept=True,
                task={"trouble": f"{how} before defer"},
            ),
            Row(
                f"Worker {how}ed at the event, a retry left",
                f"{who} is killed when it has been woken with the event; the retry goes on with "
                "what was trained.",
                dies,
                task={**_RETRY, "trouble": f"{how} at the event"},
            ),
            Row(
                f"Worker {how}ed at the event, no retry left",
                f"{who} is killed when it has been woken with the event.",
                dies,
                state="failed",
                task={"trouble": f"{how} at the event"},
            ),
        )
    ),
    Row(
        "Waiting worker SIGTERMed, a retry left",
        "SIGTERM to a worker that waits for its job; the retry goes on with it.",
        waits_and_sigterm,
        task={**_WAITS, **_RETRY},
    ),
    Row(
        "Waiting worker SIGTERMed, no retry left",
        "SIGTERM to a worker that waits for its job.",
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
        "Maybe before its trigger runs, so that nobody is told.",
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
        "The worker dies between submit and defer; until the retry the DAG asks for another job.",
        retry_of_another,
        "success",
        2,
        1,
        task={**_RETRY, "trouble": "hold before defer"},
    ),
    Row(
        "DAG run timeout",
        "dagrun_timeout passes while the task is deferred.",
        times_out,
        "skipped",
        1,
        1,
        task={"dagrun_timeout": 90},
    ),
    Row(
        "Execution timeout",
        "execution_timeout passes while the task is deferred.",
        times_out,
        "failed",
        1,
        1,
        task={"execution_timeout": 60},
    ),
    Row(
        "Execution timeout while waiting",
        "execution_timeout passes while the worker waits.",
        times_out,
        "failed",
        1,
        1,
        task={"execution_timeout": 60, **_WAITS},
    ),
    Row(
        "Deferral timeout",
        "Airflow wakes the task because it was deferred for too long.",
        times_out,
        "failed",
        1,
        1,
        task={"trouble": "short deferral"},
    ),
    Row(
        "DAG run deleted and made again",
        "While the task is deferred the run is failed and deleted; that which is made again has "
        "the same id.",
        made_again,
        "success",
        2,
        1,
    ),
    # the cluster's API
    Row("Watch cut", "All watches are cut, five times.", watch_cut, own_proxy=True),
    Row("Watch expired", "All watches expire, three times.", watch_expired, own_proxy=True),
    Row("Watch forbidden", "403 to all watches, always.", watch_forbidden, own_proxy=True),
    Row("API server slow", "2 s for each answer.", slow, own_proxy=True),
    Row(
        "API server away",
        "For 60 s, while the task is deferred; the training ends meanwhile.",
        away,
        own_proxy=True,
    ),
    Row(
        "API server away at submit",
        "For 60 s; retries come every 15 s.",
        away_at_submit,
        own_proxy=True,
        task={"retries": 5, "retry_delay": 15},
    ),
    Row(
        "API server away during on_kill",
        "The deferred task is marked failed while the API server is away for 32 s.",
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
            f"{code} to everything for 15 s, while the task is deferred; the training ends in the "
            "middle of it.",
            answering(code),
            own_proxy=True,
        )
        for code in (401, 403, 429, 500, 503)
    ),
    *(
        Row(
            f"API server answers {code} to the create",
            f"{code} to the first two attempts to make the job.",
            refusing_create(code),
            own_proxy=True,
            task=_RETRY,
        )
        for code in (401, 429, 500, 503)
    ),
    Row(
        "API server answers 403 to the create",
        "Always: the task fails at once, although it has retries.",
        forbidden_to_create,
        "failed",
        0,
        own_proxy=True,
        task={"retries": 3},
    ),
    Row(
        "The answer to the create is lost",
        "The API server makes the job, and the connection is closed before it says so.",
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
        "The job has a time to live of 0 s, and is gone as soon as it has ended.",
        nothing,
        task={"ttl": 0, "on_finish": "keep"},
    ),
    Row(
        "Pod killed",
        "The leader's process gets SIGKILL; the retry trains anew.",
        pod_killed,
        "success",
        2,
        1,
        task={**_RETRY, "workers": 1},
    ),
    Row(
        "Pod deleted",
        "The leader's pod is deleted by hand; the retry trains anew.",
        pod_deleted,
        "success",
        2,
        1,
        task={**_RETRY, "workers": 1},
    ),
    Row(
        "Pod evicted",
        "The leader's pod is evicted; the retry trains anew.",
        pods_lost("Evicted"),
        "success",
        2,
        1,
        task={**_RETRY, "workers": 1},
    ),
    Row(
        "Node gone",
        "The leader's pod is failed by the cluster since its node is lost; the retry trains anew.",
        pods_lost("NodeLost"),
        "success",
        2,
        1,
        task={**_RETRY, "workers": 1},
    ),
    # parts of Airflow
    Row("Triggerer SIGTERM", "And started again.", meets, group="sigterm"),
    Row(
        "Triggerer SIGTERM, training ends meanwhile",
        "And started again.",
        ends_meanwhile,
        group="sigterm",
    ),
    Row("Triggerer SIGKILL", "And started again.", meets, group="sigkill"),
    Row(
        "Triggerer SIGKILL, training ends meanwhile",
        "And started again.",
        ends_meanwhile,
        group="sigkill",
    ),
    Row(
        "Marked failed while no triggerer lives",
        "So that nobody is told; swept when the triggerer is back and the next job runs.",
        marked_meanwhile,
        "failed",
        1,
        1,
        swept=True,
        group="sigkill",
    ),
    Row(
        "Cleared while no triggerer lives",
        "The next try ends the job and makes another one.",
        cleared_meanwhile,
        "success",
        2,
        1,
        group="sigkill",
    ),
    Row(
        "DAG run deleted and made again while no triggerer lives",
        "The new run has the same id, asks for the same, and goes on with the job.",
        removed_meanwhile,
        group="sigkill",
    ),
    Row(
        "Two Airflows in one namespace",
        "Both have the same DAG and run; in the first one the task is marked failed, that of the "
        "second one succeeds.",
        two_airflows,
        "failed",
        2,
        1,
        group="two",
    ),
    Row(
        "Triggerer SIGSTOP for 28 s, reassigned",
        "A second triggerer takes over; then the first one wakes up.",
        meets,
        group="sigstop",
    ),
    Row(
        "Triggerer SIGSTOP for 28 s, training ends meanwhile",
        "A second triggerer takes over; then the first one wakes up.",
        ends_meanwhile,
        group="sigstop",
    ),
    Row(
        "Triggerer SIGSTOP for 28 s, marked failed meanwhile",
        "A second triggerer takes over; then the first one wakes up.",
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
        "SIGKILL, then started again; the retry goes on with the job.",
        waits_meanwhile,
        group="scheduler killed",
        task={**_WAITS, **_RETRY},
    ),
)


CANNOT_HOLD = (
    (
        "The worker outlives its event, no retry left",
        "Airflow takes the end of the worker that deferred for that of the worker that goes on, "
        "and fails the task. Events are held back for three of Airflow's own heartbeats, 15 s by "
        "default; if the worker needs longer than that to end, only a retry helps. It takes what "
        "was trained, or trains anew: Airflow lets the worker that goes on do so for a heartbeat, "
        "in which it may conclude the job of a try that has failed already.",
    ),
    (
        "A job that ends and is deleted, by its TTL or by hand, while no triggerer lives",
        "How it ended stands nowhere any more: the task fails or trains anew. So it is with "
        "a TTL of 0 s and a job that ends before its trigger runs. The TTL is a day unless the "
        "author says otherwise.",
    ),
    (
        "A job without a task in a namespace in which no job is started any more",
        "The sweeper looks where a triggerer watches. `airflow-kftrain sweep` looks everywhere, "
        "and the job's deadline and TTL hold.",
    ),
)
"""Not played: what is done, and why no code of ours can mend it."""
