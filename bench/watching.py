"""What a thousand deferred tasks cost a triggerer. `make bench` prints the figures.

A thousand jobs stand in the embedded cluster, whose operator leaves them alone, so that no pods
run; another process ends them. Triggers run as in a triggerer: tasks of one event loop. Goals in
brackets. Stalls are counted in CPU time of the loop's thread, so that what else runs on the machine
is not counted.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "bench"))
os.environ.setdefault("AIRFLOW__LOGGING__LOGGING_LEVEL", "WARNING")

from local import JOBS, Figure, all_of, cluster  # noqa: E402

from airflow_kftrain.hooks import training_job_async  # noqa: E402
from airflow_kftrain.kinds import JobReference  # noqa: E402
from airflow_kftrain.local.api_client import ApiClient, read_kubeconfig  # noqa: E402
from airflow_kftrain.local.faults.command import FaultProxy, running  # noqa: E402
from airflow_kftrain.manifests.identity import Owner, owner_annotations, owner_labels  # noqa: E402
from airflow_kftrain.messages import WatchOrder  # noqa: E402
from airflow_kftrain.triggers.training_job import TrainingJobTrigger  # noqa: E402
from airflow_kftrain.watching import feeds, streams  # noqa: E402

COUNT = 1_000
INSTANCE = "bench"
CLUSTER, PROXIED = "cluster", "proxied"
"""Connections."""
TEN_MINUTES = 60.0
"""Waits that are tenfold shorter make ten minutes last one."""
ENDS_A_SECOND = 10
ENDS = 200

_RUNNING = {
    "conditions": [
        {"type": "Created", "status": "True", "reason": "PyTorchJobCreated", "message": "created"},
        {"type": "Running", "status": "True", "reason": "PyTorchJobRunning", "message": "runs"},
    ],
    "replicaStatuses": {"Master": {"active": 1}, "Worker": {"active": 4}},
    "startTime": "2026-01-01T00:00:00Z",
}
_DONE = {
    "conditions": [
        *_RUNNING["conditions"],  # type: ignore[misc]
        {"type": "Succeeded", "status": "True", "reason": "PyTorchJobSucceeded", "message": "ok"},
    ],
    "completionTime": "2026-01-01T00:00:00Z",
}


def manifest(number: int) -> dict[str, Any]:
    """About as large as real ones."""
    owner = Owner(INSTANCE, "a_dag", "train", f"run-{number}", f"ti-{number}")
    env = [{"name": f"VARIABLE_{each}", "value": "x" * 40} for each in range(20)]
    main = {"name": "pytorch", "image": "registry/train:1.4", "command": ["train"], "env": env}
    role = {"restartPolicy": "Never", "template": {"spec": {"containers": [main]}}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {
            "name": f"a-dag-train-{number:04}",
            "labels": owner_labels(owner),
            "annotations": owner_annotations(owner),
        },
        "spec": {
            "runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"},
            "pytorchReplicaSpecs": {
                "Master": {"replicas": 1, **role},
                "Worker": {"replicas": 4, **role},
            },
        },
    }


async def make_jobs(api: ApiClient) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []

    async def make(number: int) -> None:
        job = await api.create(JOBS, manifest(number))
        await set_status(api, job["metadata"]["name"], _RUNNING)
        made.append(job)

    await all_of(COUNT, make)
    return made


async def set_status(api: ApiClient, name: str, status: dict[str, Any]) -> None:
    await api.merge_patch(f"{JOBS}/{name}/status", {"status": status})


def trigger_for(job: dict[str, Any], connection: str) -> TrainingJobTrigger:
    """As a triggerer has it: from JSON."""
    metadata = job["metadata"]
    reference = JobReference("PyTorchJob", "default", metadata["name"], metadata["uid"])
    order = WatchOrder(
        reference,
        "kubeflow.org/v1",
        connection=connection,
        instance=INSTANCE,
        owner=metadata["annotations"]["airflow-kftrain/owner"],
        ordered=datetime.now(timezone.utc),
    )
    trigger = TrainingJobTrigger(**json.loads(json.dumps({"order": order.to_dict()})))
    # What it would write to the task's log is no part of this.
    trigger._tell = lambda _: None  # type: ignore[method-assign]
    return trigger


class Ends:
    """When which trigger fired."""

    def __init__(self) -> None:
        self.times: dict[str, float] = {}
        self.verdicts: set[str] = set()

    async def run(self, name: str, trigger: TrainingJobTrigger) -> None:
        async for event in trigger.run():
            self.times[name] = time.time()
            self.verdicts.add(event.payload["verdict"])


@asynccontextmanager
async def triggers(jobs: list[dict[str, Any]], connection: str = CLUSTER) -> AsyncIterator[Ends]:
    """All of them, as soon as they know their jobs; a triggerer takes 50 a second."""
    ends = Ends()
    tasks = []
    for number, job in enumerate(jobs):
        if number % 50 == 0:
            await asyncio.sleep(0.1)
        run = ends.run(job["metadata"]["name"], trigger_for(job, connection))
        tasks.append(asyncio.create_task(run))
    hub = feeds.hub_of(connection)
    await until(lambda: all(feed.jobs_stream.synced for feed in hub._feeds.values()))
    await asyncio.sleep(3)
    yield ends
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@contextmanager
def stalls() -> Iterator[list[float]]:
    """Milliseconds of CPU from a turn in the loop to the next, which is due in two."""
    found: list[float] = []

    async def look() -> None:
        while True:
            before = time.thread_time()
            await asyncio.sleep(0.002)
            found.append(1000 * (time.thread_time() - before))

    task = asyncio.get_running_loop().create_task(look())
    try:
        yield found
    finally:
        task.cancel()


@contextmanager
def requests() -> Iterator[list[str]]:
    made: list[str] = []
    send = training_job_async._Client.request

    async def counted(self: Any, call: Any, seconds: float | None) -> Any:
        made.append(call.doing)
        return await send(self, call, seconds)

    training_job_async._Client.request = counted  # type: ignore[method-assign]
    try:
        yield made
    finally:
        training_job_async._Client.request = send  # type: ignore[method-assign]


def share(figures: list[float], percent: int) -> float:
    ordered = sorted(figures)
    return ordered[min(len(ordered) * percent // 100, len(ordered) - 1)]


def spread(name: str, figures: list[float], goals: tuple[float, float, float]) -> Iterator[Figure]:
    for percent, goal in zip((50, 99, 100), goals, strict=True):
        word = "max" if percent == 100 else f"p{percent}"
        yield f"{name}, {word}", share(figures, percent), goal


async def memory(jobs: list[dict[str, Any]]) -> float:
    """KiB of a trigger over those of one that awaits an Event."""

    async def idle() -> None:
        await asyncio.Event().wait()

    def held() -> int:
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    await nobody_waits()
    tracemalloc.start()
    before = held()
    tasks = [asyncio.create_task(idle()) for _ in jobs]
    await asyncio.sleep(0.5)
    of_idle = held() - before
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    del tasks
    before = held()
    async with triggers(jobs):
        await asyncio.sleep(15)  # past the first looks
        of_triggers = held() - before
        if "-v" in sys.argv:
            for line in tracemalloc.take_snapshot().statistics("lineno")[:40]:
                print(line)
    tracemalloc.stop()
    return (of_triggers - of_idle) / len(jobs) / 1024


async def until(seen: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not seen():  # nobody would set an event
        assert time.monotonic() < end
        await asyncio.sleep(0.05)


async def nobody_waits() -> None:
    """Nothing is left of the triggers before."""
    await until(lambda: not feeds.hub_of(CLUSTER).is_busy)


async def settle() -> None:
    """Else the garbage collector looks, now and then, through all that Airflow and a Kubernetes
    client have imported, which takes it a tenth of a second, in any triggerer."""
    gc.collect()
    gc.freeze()
    await asyncio.sleep(0.05)


async def idling(jobs: list[dict[str, Any]]) -> list[Figure]:
    """Ten minutes in one."""
    watch_seconds, list_seconds = streams.WATCH_SECONDS, streams.LIST_AGAIN_SECONDS
    streams.WATCH_SECONDS, streams.LIST_AGAIN_SECONDS = watch_seconds / 10, list_seconds / 10
    with stalls() as starting:
        async with triggers(jobs[:1]):
            by_first_client = max(starting)
        await nobody_waits()
        await settle()
        starting.clear()
        async with triggers(jobs):
            by_start = max(starting)
            with requests() as made, stalls() as lags:
                await asyncio.sleep(TEN_MINUTES)
    async with triggers(jobs):
        began = time.thread_time()
        await asyncio.sleep(TEN_MINUTES / 2)
        used = 2 * (time.thread_time() - began)
    streams.WATCH_SECONDS, streams.LIST_AGAIN_SECONDS = watch_seconds, list_seconds
    return [
        ("requests a minute", len(made) / 10, 4),
        ("CPU seconds a minute", used / 10, 1),
        *spread("stall while idle (ms)", lags, (5, 20, 20)),
        ("stall while 1,000 start (ms)", by_start, 20),
        ("stall by the first client (ms)", by_first_client, 300),
    ]


async def ending(jobs: list[dict[str, Any]], kubeconfig: Path, rate: float) -> list[Figure]:
    names = [job["metadata"]["name"] for job in jobs]
    async with triggers(jobs) as ends:
        command = [sys.executable, __file__, "--end", str(kubeconfig), str(rate), *names]
        with stalls() as lags:
            child = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
            text, _ = await child.communicate()
            await until(lambda: len(ends.times) == len(names))
    written = json.loads(text)
    assert ends.verdicts == {"succeeded"}, ends.verdicts
    seconds = [ends.times[name] - written[name] for name in names]
    title = f"write to event, {rate:g} ends a second (s)"
    storm = rate > 100
    goals = (10.0, 30.0, 30.0) if storm else (0.5, 1.0, 1.0)
    return [*spread(title, seconds, goals), (f"stall, {rate:g} ends a second (ms)", max(lags), 20)]


async def end_them(kubeconfig: Path, rate: float, names: list[str]) -> None:
    """Runs in a process of its own."""
    written: dict[str, float] = {}
    async with ApiClient(read_kubeconfig(kubeconfig)) as api:
        began = time.monotonic()

        async def one(number: int, name: str) -> None:
            await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
            written[name] = time.time()
            await set_status(api, name, _DONE)

        await asyncio.gather(*(one(number, name) for number, name in enumerate(names)))
    print(json.dumps(written))


async def expiring(jobs: list[dict[str, Any]], kubeconfig: Path) -> list[Figure]:
    """410 for all watches."""
    await nobody_waits()
    with running(FaultProxy(kubeconfig)) as proxy:
        connect(PROXIED, proxy.kubeconfig)
        async with triggers(jobs, PROXIED):
            await settle()
            with requests() as made, stalls() as lags:
                await asyncio.to_thread(proxy.expire)
                await asyncio.sleep(5)
    return [
        ("requests after 410 for all", float(len(made)), 40),
        ("stall, 410 for all (ms)", max(lags), 20),
    ]


async def figures(kubeconfig: Path) -> list[Figure]:
    async with ApiClient(read_kubeconfig(kubeconfig)) as api:
        jobs = await make_jobs(api)
    feeds.LINGER_SECONDS = 0.0
    connect(CLUSTER, kubeconfig)
    rows = await idling(jobs)
    rows += [("memory of a trigger (KiB)", await memory(jobs), 4)]
    rows += await expiring(jobs, kubeconfig)
    rows += await ending(jobs[:ENDS], kubeconfig, ENDS_A_SECOND)
    rows += await ending(jobs[ENDS:], kubeconfig, float(COUNT))
    return rows


def connect(connection: str, kubeconfig: Path) -> None:
    said = {"conn_type": "kubernetes", "extra": {"kube_config_path": str(kubeconfig)}}
    os.environ[f"AIRFLOW_CONN_{connection.upper()}"] = json.dumps(said)


def main() -> None:
    if "--end" in sys.argv:
        _, _, kubeconfig, rate, *names = sys.argv
        asyncio.run(end_them(Path(kubeconfig), float(rate), names))
        return
    with cluster() as (_, _, kubeconfig):
        rows = asyncio.run(figures(kubeconfig))
    for name, figure, goal in rows:
        print(f"{name:<56} {figure:8.2f}  [{goal:g}]")


if __name__ == "__main__":
    main()
