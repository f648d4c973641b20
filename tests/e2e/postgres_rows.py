"""Rows of the fault matrix that need PostgreSQL, two schedulers or a second cluster."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable

from airflow_kftrain.manifests.identity import DELIVERED_ANNOTATION
from kftrain_local.agent.processes import table
from kftrain_local.faults.rules import Fault
from tests.e2e.play import FINAL, Play, Row, lives
from tests.e2e.postgres_stage import stored
from tests.e2e.stage import until

_FEW = 4
"""Enough tasks for each triggerer to have some."""
_MANY = 200
_SOME = 60
_QUEUE = {"max_active_tasks": 40}
"""More than can run at once, but few enough that the schedulers do not have to wait until their
queue is read: then each would take the other one for dead, and there would be hardly any
progress."""
_RESET = "orphaned TaskInstances"
"""What a scheduler logs when it resets the tasks of one that it takes for dead."""

Story = Callable[[Play], Awaitable[None]]

# ----- another cluster


def moved(move: Story, *, deferred: bool) -> Story:
    """The tasks of the first run train on the first cluster. When the connection is moved, they are
    still `deferred`, or have ended. Those of the second run have to train on the second cluster."""

    async def play_it(play: Play) -> None:
        await play.trigger()
        await play.trains(_FEW)
        await play.until("deferred")
        await play.watched()
        if not deferred:
            play.go()
            await play.until("success")
            play.stay()
        await move(play)
        await play.trigger_another()
        await play.trains(2 * _FEW)
        # Time for the triggers to look at the wrong cluster.
        await play.until("deferred", *FINAL)
        play.go()

    return play_it


async def edit_connection(play: Play) -> None:
    name = play.row.connection
    body = stored(name, play.stage.kubeconfigs[1])
    await play.airflow.patch(f"connections/{name}", body)


async def rewrite_kubeconfig(play: Play) -> None:
    file = play.proxy.kubeconfig
    new = file.with_suffix(".new")
    new.write_text(play.stage.kubeconfigs[1].read_text())
    new.replace(file)


# ----- between the event and the worker


async def succeeds_late(play: Play) -> None:
    """The trigger has decided that the time is up; the job succeeds before the worker acts on
    that."""
    await play.trigger()
    await play.trains()
    await goes_on(play)
    play.go()

    async def succeeded() -> bool:
        return not lives(await play.job())

    await until(succeeded, "the job has succeeded")
    (play.folder / "go-on").touch()


async def stopped_at_the_event(play: Play) -> None:
    await play.trigger()
    await play.trains()
    play.go()
    await goes_on(play)
    await play.send(signal.SIGTERM)
    await play.worker_ended()
    kept = await is_kept(play)
    await play.until(*FINAL)
    taken = all(each.try_number == 1 for each in play.instances())
    assert kept or taken, "Airflow did not take the success, and yet the job is deleted or marked"


async def reset_at_the_event(play: Play) -> None:
    """Like an overloaded scheduler: the other one resets its tasks, and does not run them again
    soon; their workers are told to stop."""
    await play.trigger()
    await play.trains()
    play.go()
    await goes_on(play)
    number = await scheduler_of(play)
    dag = f"dags/{play.dag}"
    await play.airflow.patch(dag, {"is_paused": True})
    # Its worker continues, and learns that the task no longer belongs to it.
    await freeze_until_reset(play, number, {play.airflow.main("scheduler", number)})
    await play.worker_ended()
    kept = await is_kept(play)
    await play.airflow.patch(dag, {"is_paused": False})
    await play.until(*FINAL, attempt=2)
    assert kept, "the worker was told to stop, and yet it has deleted the job or marked it"


async def goes_on(play: Play) -> None:
    await until((play.folder / "goes-on").exists, "the worker has the event")


async def is_kept(play: Play) -> bool:
    """The job exists, and its result has not been delivered to any try."""
    jobs = await play.jobs()
    return bool(jobs) and DELIVERED_ANNOTATION not in jobs[0]["metadata"]["annotations"]


# ----- submit


def stopped_in_a_pause(code: int, attempts: int) -> Story:
    async def play_it(play: Play) -> None:
        """After so many attempts, the pause is longer than the time that the worker has to exit."""
        fault = play.proxy.add(
            Fault(verb="create", resource="pytorchjobs", code=code, retry_after=20)
        )
        await play.trigger()
        await until(lambda: fault.hits >= attempts, f"{attempts} attempts have failed")
        await play.send(signal.SIGTERM)
        try:
            await play.worker_left(seconds=5)
        finally:
            play.proxy.remove(fault)

    return play_it


# ----- overload


async def scheduler_of(play: Play) -> int:
    """The number of the scheduler whose worker runs the task."""
    _, supervisor = await play.worker()
    for number in (1, 2):
        if supervisor in play.airflow.members("scheduler", number):
            return number
    raise AssertionError("the worker belongs to no scheduler")


async def freeze_until_reset(play: Play, number: int, pids: set[int]) -> None:
    other = 3 - number
    before = play.airflow.times_said(_RESET, "scheduler", other)
    play.airflow.send(pids, signal.SIGSTOP)
    try:
        await until(
            lambda: play.airflow.times_said(_RESET, "scheduler", other) > before,
            "the other scheduler resets the tasks",
        )
    finally:
        play.airflow.send(pids, signal.SIGCONT)


async def overloaded(play: Play) -> None:
    """A scheduler and its workers are frozen. They continue when their tasks have just been
    reset."""
    play.go()
    await play.trigger()
    await play.trains(play.row.trainings // 3)
    await freeze_until_reset(play, 1, play.airflow.members("scheduler"))


async def overloaded_and_stopped(play: Play) -> None:
    """And every third worker is told to stop."""
    play.go()
    await play.trigger()
    await play.trains(play.row.trainings // 3)
    workers = sorted(working(play))
    play.airflow.send(set(workers[::3]), signal.SIGTERM)
    await freeze_until_reset(play, 1, play.airflow.members("scheduler"))


def working(play: Play) -> set[int]:
    """The supervisors of the tasks that are running."""
    processes = table()
    schedulers = {play.airflow.main("scheduler", number) for number in (1, 2)}
    workers = {pid for pid, process in processes.items() if process.parent in schedulers}
    return {process.parent for process in processes.values() if process.parent in workers}


POSTGRES_ROWS = (
    *(
        Row(
            f"{what}, tasks {when}",
            f"{how} is changed to lead to another cluster, on which more tasks then train; the "
            f"earlier tasks are {when}.",
            moved(move, deferred=when == "deferred"),
            trainings=2 * _FEW,
            task={"mapped": _FEW},
            own_proxy=True,
        )
        for what, how, move in (
            ("Connection edited", "The connection in Airflow's database", edit_connection),
            ("Kubeconfig rewritten", "The file of the connection", rewrite_kubeconfig),
        )
        for when in ("done", "deferred")
    ),
    Row(
        "Success after the deadline",
        "execution_timeout expires while the task is deferred; the job succeeds before the worker "
        "acts on that.",
        succeeds_late,
        task={"execution_timeout": 60, "trouble": "wait at the event"},
    ),
    *(
        Row(
            f"Worker SIGTERMed while the API server answers {code} to the create",
            "SIGTERM in the pause before the next attempt; the operator returns within 5 s.",
            stopped_in_a_pause(code, attempts),
            state="failed",
            trainings=0,
            own_proxy=True,
        )
        for code, attempts in ((429, 1), (503, 5))
    ),
    Row(
        "Worker SIGTERMed at the event, a retry left",
        "SIGTERM when the task has resumed with a success; if Airflow does not accept the success, "
        "the job is left to the retry.",
        stopped_at_the_event,
        task={"retries": 1, "retry_delay": 15, "trouble": "wait at the event"},
    ),
    Row(
        "Task reset at the event, no retry left",
        "A scheduler is frozen and the other one resets its task, which has resumed with a "
        "success; then the worker receives SIGTERM. The next try adopts the finished job.",
        reset_at_the_event,
        group="frozen scheduler",
        task={"trouble": "wait at the event"},
    ),
    Row(
        f"{_MANY} mapped jobs, a scheduler frozen",
        "A scheduler and its workers are frozen until the other scheduler has reset its tasks; "
        "then the workers resume, and receive SIGTERM.",
        overloaded,
        trainings=_MANY,
        group="many frozen",
        task={"mapped": _MANY, **_QUEUE},
    ),
    Row(
        f"{_SOME} mapped jobs, workers SIGTERMed, retries left",
        "A third of the workers receive SIGTERM; then a scheduler and its workers are frozen until "
        "the other one has reset its tasks.",
        overloaded_and_stopped,
        trainings=_SOME,
        group="many stopped",
        task={"mapped": _SOME, "retries": 3, **_QUEUE},
    ),
)
