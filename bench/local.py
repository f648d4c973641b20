"""Figures of the embedded cluster. `make bench` prints them.

Each is taken once, on a cluster that `airflow-kftrain local up` has started; goals in brackets.
Trust ratios between runs on one machine, not milliseconds of another.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from airflow_kftrain.local.api_client import ApiClient, core, read_kubeconfig  # noqa: E402
from tests.cluster.jobs import pytorch_job  # noqa: E402
from tests.programs import ALL_REDUCE  # noqa: E402

NAME = f"bench-{os.getpid()}"
JOBS = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
AT_ONCE = 20
WATCHES = 1_000
IDLE_SECONDS = 10

Figure = tuple[str, float, float]


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


@asynccontextmanager
async def timed(seconds: list[float]) -> AsyncIterator[None]:
    began = time.monotonic()
    yield
    seconds.append(time.monotonic() - began)


async def all_of(count: int, work: Callable[[int], Awaitable[Any]]) -> None:
    """Some at once, as several clients would."""
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> None:
        async with turn:
            await work(number)

    await asyncio.gather(*(one(number) for number in range(count)))


async def watching(api: ApiClient, pid: int) -> AsyncIterator[Figure]:
    async def watch(number: int) -> None:
        async for _ in api.follow(JOBS, fieldSelector=f"metadata.name=job-{number}"):
            pass

    before = cpu_seconds(pid)
    watches = [asyncio.create_task(watch(number)) for number in range(WATCHES)]
    # They are open when opening them costs nothing any more.
    while (now := cpu_seconds(pid)) == before or now - before > 0.02:
        before = now
        await asyncio.sleep(1)
    before = cpu_seconds(pid)
    await asyncio.sleep(IDLE_SECONDS)
    share = 100 * (cpu_seconds(pid) - before) / IDLE_SECONDS
    yield f"{WATCHES} idle watches (% of a CPU)", share, 1
    yield f"memory with {WATCHES} watches (MiB)", memory(pid), 100
    for each in watches:
        each.cancel()
    await asyncio.gather(*watches, return_exceptions=True)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


async def training(api: ApiClient) -> AsyncIterator[Figure]:
    def role(count: int) -> dict[str, Any]:
        env = [{"name": "RESULT_FILE", "value": "/dev/termination-log"}]
        command = ["python", "-c", ALL_REDUCE]
        main = {"name": "pytorch", "image": "x", "command": command, "env": env}
        spec = {"containers": [main]}
        return {"replicas": count, "restartPolicy": "Never", "template": {"spec": spec}}

    taken: list[float] = []
    async with timed(taken):
        await api.create(JOBS, pytorch_job({"Master": role(1), "Worker": role(2)}, name="train"))
        async for _, found in api.follow(JOBS, fieldSelector="metadata.name=train"):
            for job in found if isinstance(found, list) else [found]:
                ended = [
                    each["type"]
                    for each in (job.get("status") or {}).get("conditions") or ()
                    if each["status"] == "True" and each["type"] in ("Succeeded", "Failed")
                ]
            if ended:
                break
    assert ended == ["Succeeded"], job
    yield "all-reduce of 1+2 processes, to Succeeded (s)", taken[0], 2


async def storing(api: ApiClient) -> AsyncIterator[Figure]:
    taken: list[float] = []
    body = pytorch_job({"Master": {"template": {"spec": {"containers": []}}}})
    containers = [{"name": "pytorch", "image": "x"}]
    role = {"replicas": 1, "template": {"spec": {"containers": containers}}}
    spec = {"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": {"Master": role}}

    async def add_job(number: int) -> None:
        await api.create(JOBS, {**body, "metadata": {"name": f"job-{number}"}, "spec": spec})

    async def add(number: int) -> None:
        config = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"key": "value" * 20}}
        await api.create(configs, {**config, "metadata": {"name": f"c-{number}"}})

    configs = core("default", "configmaps")
    async with timed(taken):
        await all_of(1_000, add_job)
    yield "creating 1,000 jobs without pods (s)", taken[-1], 3
    await all_of(10_000, add)
    async with timed(taken):
        items, _ = await api.list(configs)
    assert len(items) == 10_000
    yield "listing 10,000 objects (s)", taken[-1], 0.5


async def figures(pid: int, kubeconfig: Path) -> list[Figure]:
    async with ApiClient(read_kubeconfig(kubeconfig)) as api:
        return [
            figure
            for each in (watching(api, pid), training(api), storing(api))
            async for figure in each
        ]


def main() -> None:
    with cluster() as (taken, pid, kubeconfig):
        rows = [("from nothing to ready (s)", taken, 1.0)]
        rows += asyncio.run(figures(pid, kubeconfig))
    for name, figure, goal in rows:
        print(f"{name:<48} {figure:8.2f}  [{goal:g}]")


if __name__ == "__main__":
    main()
