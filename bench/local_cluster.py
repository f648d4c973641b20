"""How fast the embedded cluster starts, what it costs while it is idle, and how much load it can
take."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.figures import Figure, Size, run, say
from kftrain_local.api_client import ApiClient, core, read_kubeconfig
from tests.cluster.jobs import pytorch_job
from tests.programs import ALL_REDUCE

ROOT = Path(__file__).resolve().parent.parent
NAME = f"bench-{os.getpid()}"
JOBS = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
AT_ONCE = 20
WATCHES = 1_000
IDLE_SECONDS = 5.0
JOBS_STORED = 1_000
OBJECTS_LISTED = 10_000


def local(*words: str) -> str:
    command = [sys.executable, "-m", "airflow_kftrain", "local", *words, "--name", NAME]
    return subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True).stdout


@contextmanager
def cluster() -> Iterator[tuple[float, int, Path]]:
    """Seconds until it was ready, its process, its kubeconfig."""
    began = time.monotonic()
    said = local("up", "--detach")
    taken = time.monotonic() - began
    try:
        pid = int(said.partition("process ")[2].split()[0])
        yield taken, pid, Path(local("kubeconfig").strip())
    finally:
        local("down")


def measure(size: Size) -> Iterator[Figure]:
    say("starting it")
    starts = []
    for _ in range(size.repetitions):
        with cluster() as (taken, _, _):
            starts.append(taken)
    yield Figure("from nothing to ready", "s", tuple(starts), goal=1)
    with cluster() as (_, pid, kubeconfig):
        yield from asyncio.run(_figures(pid, kubeconfig, size))


async def _figures(pid: int, kubeconfig: Path, size: Size) -> list[Figure]:
    async with ApiClient(read_kubeconfig(kubeconfig)) as api:
        return [
            figure
            for part in (_watching(api, pid, size), _training(api, size), _storing(api, size))
            async for figure in part
        ]


async def _watching(api: ApiClient, pid: int, size: Size) -> AsyncIterator[Figure]:
    say("watching it")
    count, seconds = (WATCHES, IDLE_SECONDS) if size.repetitions > 1 else (50, 1.0)

    listed: set[int] = set()

    async def watch(number: int) -> None:
        async for _ in api.follow(JOBS, fieldSelector=f"metadata.name=job-{number}"):
            listed.add(number)

    watches = [asyncio.create_task(watch(number)) for number in range(count)]
    # All watches are open when opening them costs no more CPU.
    before = -1.0
    while len(listed) < count or cpu_seconds(pid) - before > 0.02:
        before = cpu_seconds(pid)
        await asyncio.sleep(1)
    shares, mebibytes = [], []
    for _ in range(size.repetitions):
        before = cpu_seconds(pid)
        await asyncio.sleep(seconds)
        shares.append(100 * (cpu_seconds(pid) - before) / seconds)
        mebibytes.append(memory(pid))
    yield Figure(f"{count:,} idle watches: share of a CPU", "%", tuple(shares), goal=1)
    yield Figure(f"{count:,} idle watches: memory", "MiB", tuple(mebibytes), goal=100)
    for each in watches:
        each.cancel()
    await asyncio.gather(*watches, return_exceptions=True)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


async def _training(api: ApiClient, size: Size) -> AsyncIterator[Figure]:
    say("training on it")
    taken = [await timed(_train(api, f"train-{number}")) for number in range(size.repetitions)]
    yield Figure("an all-reduce of 3 processes: until Succeeded", "s", tuple(taken), goal=2)


async def _train(api: ApiClient, name: str) -> None:
    def role(count: int) -> dict[str, Any]:
        env = [{"name": "RESULT_FILE", "value": "/dev/termination-log"}]
        command = ["python", "-c", ALL_REDUCE]
        main = {"name": "pytorch", "image": "x", "command": command, "env": env}
        template = {"spec": {"containers": [main]}}
        return {"replicas": count, "restartPolicy": "Never", "template": template}

    await api.create(JOBS, pytorch_job({"Master": role(1), "Worker": role(2)}, name=name))
    async for _, found in api.follow(JOBS, fieldSelector=f"metadata.name={name}"):
        for job in found if isinstance(found, list) else [found]:
            conditions = (job.get("status") or {}).get("conditions") or ()
            true = {each["type"] for each in conditions if each["status"] == "True"}
            assert "Failed" not in true, job
            if "Succeeded" in true:
                return


async def _storing(api: ApiClient, size: Size) -> AsyncIterator[Figure]:
    say("storing in it")
    full = size.repetitions > 1
    jobs, objects = (JOBS_STORED, OBJECTS_LISTED) if full else (20, 100)
    body = pytorch_job({"Master": {"template": {"spec": {"containers": []}}}})
    containers = [{"name": "pytorch", "image": "x"}]
    role = {"replicas": 1, "template": {"spec": {"containers": containers}}}
    spec = {"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": {"Master": role}}

    async def add_job(name: str) -> None:
        await api.create(JOBS, {**body, "metadata": {"name": name}, "spec": spec})

    async def add(number: int) -> None:
        config = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"key": "value" * 20}}
        await api.create(configs, {**config, "metadata": {"name": f"c-{number}"}})

    configs = core("default", "configmaps")
    creates = [
        await timed(all_of(jobs, lambda number, turn=turn: add_job(f"job-{turn}-{number}")))  # type: ignore[misc]
        for turn in range(size.repetitions)
    ]
    yield Figure(f"creating {jobs:,} jobs without pods", "s", tuple(creates), goal=3)
    await all_of(objects, add)
    lists = [await timed(_list(api, configs, objects)) for _ in range(size.repetitions)]
    yield Figure(f"listing {objects:,} objects", "s", tuple(lists), goal=0.5)


async def _list(api: ApiClient, path: str, count: int) -> None:
    items, _ = await api.list(path)
    assert len(items) >= count, len(items)


async def timed(work: Awaitable[Any]) -> float:
    """In seconds."""
    began = time.monotonic()
    await work
    return time.monotonic() - began


async def all_of(count: int, work: Callable[[int], Awaitable[Any]]) -> None:
    """Several at once, like several clients."""
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> None:
        async with turn:
            await work(number)

    await asyncio.gather(*(one(number) for number in range(count)))


if __name__ == "__main__":
    run(measure)
