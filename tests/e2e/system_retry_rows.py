"""Rows of the fault matrix: the cluster ends a job, and the same try runs it again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kftrain_local.api_client import core
from tests.e2e.play import Play, Row, lives
from tests.e2e.stage import until

_TASK = {"workers": 1, "system_retries": 1}


async def _lose(play: Play, reason: str) -> None:
    """Fails all leaders, as the cluster does when it removes their pods from their nodes."""
    leaders: list[str] = []

    async def run() -> bool:
        pods = [pod for pod in await play.pods() if pod["status"].get("phase") == "Running"]
        names = [pod["metadata"]["name"] for pod in pods]
        leaders[:] = [name for name in names if "-master-" in name]
        return len(leaders) == max(len(play.instances()), 1)

    await until(run, "all leaders run", play.patience)
    end = {"phase": "Failed", "reason": reason, "message": f"{reason}, says the test"}
    for name in leaders:
        path = core(play.namespace, "pods", name, "status")
        await play.stage.api.merge_patch(path, {"status": end})

    async def have_failed() -> bool:
        return not [job for job in await play.jobs() if lives(job)]

    await until(have_failed, "all jobs have failed", play.patience)


async def _in_the_pause(play: Play, number: int = 1) -> None:
    """The trigger waits for the time of the system retry."""

    def look() -> bool:
        logs = play.logs("attempt=*.log.trigger.*")
        said = [log for log in logs if f"System retry {number} of" in log.read_text()]
        return len(said) >= max(len(play.instances()), 1)

    await until(look, "the trigger waits before the system retry", play.patience)


def _tries(play: Play) -> set[int]:
    return {each.try_number for each in play.instances()}


def lost(*reasons: str, tries: int = 1) -> Callable[[Play], Awaitable[None]]:
    async def lose(play: Play) -> None:
        await play.deferred()
        count = max(len(play.instances()), 1)
        for number, reason in enumerate(reasons, 1):
            await _lose(play, reason)
            await play.trains(count * (number + 1))
        play.go()
        await play.until("success")
        assert _tries(play) == {tries}, _tries(play)

    return lose


async def runs_out_of_memory(play: Play) -> None:
    """What has ended the job was not the cluster."""
    await play.deferred()
    play.go("hog")


async def deleted(play: Play) -> None:
    await play.deferred()
    await play.delete_job()


async def marked_failed_in_the_pause(play: Play) -> None:
    await play.deferred()
    await _lose(play, "Evicted")
    await _in_the_pause(play)
    await play.set_state("failed")


async def cleared_in_the_pause(play: Play) -> None:
    await play.deferred()
    await _lose(play, "Evicted")
    await _in_the_pause(play)
    await play.clear()
    await play.trains(2)
    play.go()


async def times_out_after(play: Play) -> None:
    """The execution timeout counts over both jobs."""
    await play.deferred()
    await _lose(play, "Evicted")
    await play.trains(2)


async def worker_dies_at_the_event(play: Play) -> None:
    """By itself: the DAG file says where."""
    await play.deferred()
    await _lose(play, "Evicted")
    await play.trains(2)
    play.go()


async def meets_in_the_pause(play: Play) -> None:
    """In the second pause, which is long enough for the others to come."""
    await play.deferred()
    await _lose(play, "Evicted")
    await play.trains(2)
    await _lose(play, "Evicted")
    await _in_the_pause(play, 2)
    await play.meet("begin")
    await play.meet("end")
    await play.trains(3)
    play.go()


SYSTEM_RETRY_ROWS = (
    Row(
        "System retry: two evictions",
        "The leader's pod is evicted twice; the same try runs the job again.",
        lost("Evicted", "Evicted"),
        "success",
        3,
        2,
        task={**_TASK, "system_retries": 2},
    ),
    Row(
        "System retry: preempted",
        "The leader's pod is preempted; the same try runs the job again.",
        lost("Preempting"),
        "success",
        2,
        1,
        task=_TASK,
    ),
    Row(
        "System retry: node gone",
        "The cluster fails the leader's pod since its node is lost; the same try runs again.",
        lost("NodeLost"),
        "success",
        2,
        1,
        task=_TASK,
    ),
    Row(
        "System retry: two at once",
        "Two mapped tasks lose their leaders at the same time.",
        lost("Evicted"),
        "success",
        4,
        2,
        task={**_TASK, "mapped": 2},
    ),
    Row(
        "System retry: used up, a retry left",
        "The leader's pod is evicted twice, with one system retry: Airflow's retry comes next.",
        lost("Evicted", "Evicted", tries=2),
        "success",
        3,
        2,
        task={**_TASK, "retries": 1},
    ),
    Row(
        "System retry: job deleted by hand",
        "The job is deleted: no system retry.",
        deleted,
        "failed",
        1,
        1,
        task=_TASK,
    ),
    Row(
        "System retry: out of memory",
        "The leader runs out of memory: no system retry.",
        runs_out_of_memory,
        "failed",
        1,
        1,
        task={**_TASK, "memory": "100Mi"},
    ),
    Row(
        "System retry: marked failed in the pause",
        "The leader's pod is evicted; the task is marked failed before the job runs again.",
        marked_failed_in_the_pause,
        "failed",
        1,
        1,
        task=_TASK,
    ),
    Row(
        "System retry: cleared in the pause",
        "The leader's pod is evicted; the task is cleared before the job runs again.",
        cleared_in_the_pause,
        "success",
        2,
        1,
        task=_TASK,
    ),
    Row(
        "System retry: execution timeout",
        "The leader's pod is evicted; the second job runs until the task's execution timeout.",
        times_out_after,
        "failed",
        2,
        2,
        task={**_TASK, "execution_timeout": 90},
    ),
    Row(
        "System retry: worker killed between two jobs",
        "The leader's pod is evicted; the worker's machine is lost before it submits the next job.",
        worker_dies_at_the_event,
        "success",
        2,
        1,
        task={**_TASK, "retries": 1, "trouble": "kill at the event"},
    ),
    Row(
        "System retry: triggerer SIGKILL in the pause",
        "The leader's pod is evicted twice; the triggerer is killed in the second pause.",
        meets_in_the_pause,
        "success",
        3,
        2,
        task={**_TASK, "system_retries": 2},
        group="sigkill",
    ),
)
