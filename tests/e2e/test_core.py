"""What has to work on every Airflow: the newest, the lowest and the next one.

make test-e2e       make test-lowest       make test-next
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from tests.cluster.statsd import Receiver
from tests.cluster.targets import Target
from tests.e2e.groups import Matrix
from tests.e2e.play import Play, Row, lives
from tests.e2e.playing import asked_for, playing_on
from tests.e2e.rows import clear, marked, retry
from tests.e2e.stage import Object, until

_HAS_LOOPS = find_spec("airflow.sdk.definitions.loop") is not None
_JOB_PAGE = "http://cluster.example.com/jobs/{namespace}/{job}"
_POD_PAGE = "http://cluster.example.com/pods/{namespace}/{pod}"

pytestmark = [pytest.mark.gate, pytest.mark.timeout(1200)]


async def value_and_links(play: Play) -> None:
    await play.deferred()
    name = (await play.job())["metadata"]["name"]
    metrics = play.stage.metrics
    await until(lambda: any(each != "0|g" for each in _gauge(metrics)), "the gauge shows the job")
    play.go()
    await play.until("success")
    task = f"{play.path}/taskInstances/train"
    value = (await play.airflow.get(f"{task}/xcomEntries/return_value"))["value"]
    assert value == {"loss": 0.5}, value
    links = (await play.airflow.get(f"{task}/links"))["extra_links"]
    place = f"{play.namespace}/{name}"
    assert links["Training job"] == f"http://cluster.example.com/jobs/{place}", links
    assert links["Leader logs"] == f"http://cluster.example.com/pods/{place}-master-0", links
    _check_rendered(await play.airflow.get(task), f"name: {name}\n")
    assert metrics.counts("job.finish")["PyTorchJob.succeeded.none"] >= 1
    calls = metrics.counts("api_calls")
    assert calls["create.201"], "the worker counts its calls"
    assert calls["watch.200"], "the triggerer does, too"


def _gauge(metrics: Receiver) -> list[str]:
    """Other rows may have jobs that run."""
    running = (each for each in metrics.read() if each[0].startswith("jobs.PyTorchJob.Running."))
    return [value for _, value in running]


async def mapped(play: Play) -> None:
    await play.trigger()
    play.go()
    await play.until("success")
    _check_rendered(
        await play.airflow.get(f"{play.path}/taskInstances/train/1"), "map_index: '1'\n"
    )


def _check_rendered(task: Object, *lines: str) -> None:
    """What the worker stored that has submitted the job, and not one that resumed the task."""
    fields = task["rendered_fields"]
    assert fields["lifecycle"]["on_finish"] == "delete_on_success", fields
    assert fields["manifest"].startswith("apiVersion: kubeflow.org/v1\nkind: PyTorchJob\n"), fields
    for line in lines:
        assert line in fields["manifest"], fields


async def loop(play: Play) -> None:
    """One iteration after the other."""
    await play.trigger()
    for number in (1, 2):
        await play.trains(number)
        play.go(attempt=_latest(play, number))


async def loop_without_waiting(play: Play) -> None:
    """All iterations train at once."""
    await play.trigger()
    await play.trains(3)
    await until(lambda: len(play.instances()) == 3, "there are three iterations")
    await play.until("success")
    _latest(play, 3)
    jobs = [job for job in await play.jobs() if lives(job)]
    assert len(jobs) == 3, [job["metadata"]["name"] for job in jobs]
    play.go()


async def clear_in_a_loop(play: Play) -> None:
    """Clears the second iteration while it trains."""
    await _second_iteration_is_watched(play)
    await play.clear(task_instance_ids=[(await _second(play))["id"]])
    await play.trains(3)
    _latest(play, 2)  # still
    play.go()


async def marked_failed_in_a_loop(play: Play) -> None:
    await _second_iteration_is_watched(play)
    region = (await _second(play))["region_id"]
    task = f"{play.path}/taskInstances/train?region_id={region}&region_index=1"
    await play.airflow.patch(task, {"new_state": "failed"})


async def _second_iteration_is_watched(play: Play) -> None:
    await play.trigger()
    await play.trains()
    play.go(attempt=_latest(play, 1))
    await play.trains(2)
    _latest(play, 2)

    def look() -> bool:
        return any((each.map_index, each.state) == (1, "deferred") for each in play.instances())

    await until(look, "the second iteration is deferred")
    await play.watched(iteration="pass=1/")


async def _second(play: Play) -> Object:
    """The task instance of the second iteration, as the REST API returns it."""
    found: list[Object] = (await play.airflow.get(f"{play.path}/taskInstances"))["task_instances"]
    (second,) = (each for each in found if (each["task_id"], each["region_index"]) == ("train", 1))
    return second


def _latest(play: Play, count: int) -> str:
    """The KFTRAIN_RUN_ID of the latest training; there must be so many of them."""
    runs = play.trained_runs()
    assert len(runs) == count, runs
    return runs[-1]


_RETRY = {"retries": 1}

ROWS = (
    Row(
        "Value and links",
        "The training succeeds.",
        value_and_links,
        task={"links": {"training_job": _JOB_PAGE, "leader_logs": _POD_PAGE}},
    ),
    Row("Retry", "The first training fails.", retry, trainings=2, task=_RETRY),
    Row(
        "Retry while waiting",
        "The same with a worker that waits.",
        retry,
        trainings=2,
        task={**_RETRY, "deferrable": False},
    ),
    Row("Marked failed", "The deferred task is marked failed.", marked("failed"), "failed", 1, 1),
    Row("Cleared", "The deferred task is cleared.", clear, "success", 2, 1),
    Row("Mapped", "One task is expanded to three jobs.", mapped, trainings=3, task={"mapped": 3}),
)
LOOPS = (
    Row("Loop", "Two iterations, one after the other.", loop, trainings=2, task={"looped": 2}),
    Row(
        "Loop without waiting",
        "Three iterations that do not wait for their jobs.",
        loop_without_waiting,
        trainings=3,
        task={"looped": 3, "wait": False},
    ),
    Row(
        "Clear in a loop",
        "The second iteration is cleared.",
        clear_in_a_loop,
        trainings=3,
        killed=1,
        task={"looped": 2},
    ),
    Row(
        "Marked failed in a loop",
        "The second iteration is marked failed.",
        marked_failed_in_a_loop,
        "failed, success",
        trainings=2,
        killed=1,
        task={"looped": 2},
    ),
)


@pytest.fixture(scope="module")
def matrix(request: pytest.FixtureRequest, target: Target) -> Iterator[Matrix]:
    # The longest ones first.
    rows = (*(LOOPS if _HAS_LOOPS else ()), *ROWS)
    with playing_on(target, asked_for(request, rows), "airflow-core") as matrix:
        yield matrix


def _check(matrix: Matrix, row: Row) -> None:
    result = matrix.result(row)
    assert result.is_good, result


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.dag)
def test_core(matrix: Matrix, row: Row) -> None:
    _check(matrix, row)


@pytest.mark.skipif(not _HAS_LOOPS, reason="this Airflow has no task loops")
@pytest.mark.parametrize("row", LOOPS, ids=lambda row: row.dag)
def test_task_loops(matrix: Matrix, row: Row) -> None:
    _check(matrix, row)
