"""What Airflow's Stats makes of our metrics, in each Airflow: on the wire, in a process that starts
as a triggerer's does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing

import pytest
from statsd import StatsClient

from tests.cluster.statsd import Receiver

PROGRAM = """
import asyncio, sys
from airflow_kftrain import stats
from airflow_kftrain.errors import Expired
from airflow_kftrain.monitoring.usage import Usage

async def gauge():
    stats.GAUGE_SECONDS = 0.1
    stats.job_moved("PyTorchJob", "", "Queued")
    stats.job_moved("PyTorchJob", "Queued", "Running")
    stats.job_moved("TFJob", "", "Queued")
    stats.job_moved("TFJob", "Queued", "")
    await asyncio.sleep(0.15)

stats.prepare()
stats.api_called("get", None)
stats.api_called("watch", 403)
stats.watch_broke("Pod", Expired("watch pods", "too old"))
stats.job_ended("PyTorchJob", "timed out", None)
stats.job_lasted("MPIJob", Usage(queued=0.25, running=3.5))
asyncio.run(gauge())
print("statsd" in sys.modules)
"""

PLAIN = [
    "api_calls.get.none:1|c",
    "api_calls.watch.403:1|c",
    "watch.reconnect.Pod.Expired:1|c",
    "job.finish.PyTorchJob.timed_out.none:1|c",
    "job.queued_duration.MPIJob:250.000000|ms",
    "job.running_duration.MPIJob:3500.000000|ms",
    "jobs.PyTorchJob.Queued.node-1__example:0|g",
    "jobs.PyTorchJob.Running.node-1__example:1|g",
    "jobs.TFJob.Queued.node-1__example:0|g",
]
TAGGED = [
    "api_calls,verb=get,code=none:1|c",
    "api_calls,verb=watch,code=403:1|c",
    "watch.reconnect,kind=Pod,error=Expired:1|c",
    "job.finish,kind=PyTorchJob,verdict=timed_out,fault=none:1|c",
    "job.queued_duration,kind=MPIJob:250.000000|ms",
    "job.running_duration,kind=MPIJob:3500.000000|ms",
    "jobs,kind=PyTorchJob,phase=Queued,hostname=node-1.example:0|g",
    "jobs,kind=PyTorchJob,phase=Running,hostname=node-1.example:1|g",
    "jobs,kind=TFJob,phase=Queued,hostname=node-1.example:0|g",
]


class Broken(StatsClient):  # type: ignore[misc]  # it has no types
    """A client that administrators may configure, and that does not work."""

    def incr(self, *_: object, **__: object) -> None:
        raise RuntimeError("no metrics today")


def node_name() -> str:
    """For `[core] hostname_callable`."""
    return "node-1.example"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with closing(Receiver()) as receiver:
        yield receiver


def run(receiver: Receiver, **options: str) -> subprocess.CompletedProcess[str]:
    options = {
        **receiver.options,
        **{name.upper(): value for name, value in options.items()},
    }
    settings = {
        "AIRFLOW__CORE__HOSTNAME_CALLABLE": f"{__name__}.node_name",
        **{f"AIRFLOW__METRICS__{name}": value for name, value in options.items()},
    }
    return subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=True,
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [({}, PLAIN), ({"statsd_influxdb_enabled": "True"}, TAGGED)],
    ids=["without tags", "with tags"],
)
def test_metrics_on_the_wire(
    receiver: Receiver, options: dict[str, str], expected: list[str]
) -> None:
    run(receiver, **options)
    assert [f"{name}:{value}" for name, value in receiver.read()] == expected


def test_without_metrics_nothing_is_sent_and_nothing_imported(receiver: Receiver) -> None:
    assert run(receiver, statsd_on="False").stdout.splitlines()[-1] == "False"
    assert receiver.read() == []


def test_a_client_that_does_not_work_is_logged_once(receiver: Receiver) -> None:
    ran = run(receiver, statsd_custom_client_path=f"{__name__}.Broken")
    assert [name for name, _ in receiver.read()] == [each.partition(":")[0] for each in PLAIN[4:]]
    assert (ran.stdout + ran.stderr).count("RuntimeError: no metrics today") == 1
