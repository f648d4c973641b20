"""What it costs that a job is a Python function: beside a command, and beside `@task.kubernetes`.

A DAG file of a hundred functions of a dozen lines; the manifest of one; its submit; and the
triggerer's first list, and its watch with a tenth of the jobs changing per minute. A function with
all that it can carry has 32 KiB in each template of its job, of the master and of the workers.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any

from bench.figures import OURS, Figure, Size, say
from bench.fleet import (
    OF_A_TURN,
    WE,
    Fleet,
    Server,
    Task,
    Turns,
    a_minute,
    are_synced,
    first_client,
    main,
    resident,
    together,
    until,
)
from bench.imports import COUNT, dag_files
from bench.storms import forget_peak, peak
from bench.submit import FULL, FUNCTION, OPERATORS, submitted

KUBERNETES = "@task.kubernetes"
CHANGING_A_MINUTE = 0.1
_STARTS_A_SECOND = 1_000.0

_FUNCTION = """
    @task.{decorator}(
        retries=2,
        execution_timeout=timedelta(hours=6),
        image="registry.example.com/train:1.4",
{given}
    )
    def train_{number}(rate: float, epochs: int = 3) -> dict[str, float]:
        import torch

        rank = int(os.environ["RANK"])
        losses = []
        for epoch in range(epochs):
            loss = torch.rand(1).item() * rate * rank / (epoch + 1)
            losses.append(loss)
            print(json.dumps({{"rank": rank, "epoch": epoch, "loss": loss, "of": {number}}}))
        return {{"loss": min(losses), "epochs": float(epochs)}}

    train_{number}(0.1)
"""
_GIVEN = {
    FUNCTION: (
        "pytorch",
        "from airflow_kftrain import Resources",
        """\
        workers=3,
        container_resources=Resources(cpu=4, memory="16Gi", gpu=1),
        env={"EPOCHS": "90", "DATA": "s3://bucket/data"},
        deferrable=True,""",
    ),
    KUBERNETES: (
        "kubernetes",
        "from kubernetes.client import V1ResourceRequirements",
        """\
        container_resources=V1ResourceRequirements(
            requests={"cpu": "4", "memory": "16Gi"},
            limits={"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "1"},
        ),
        env_vars={"EPOCHS": "90", "DATA": "s3://bucket/data"},""",
    ),
}


def dag_file(who: str) -> str:
    decorator, imports, given = _GIVEN[who]
    functions = (
        _FUNCTION.format(decorator=decorator, given=given, number=number) for number in range(COUNT)
    )
    head = f"import json\nimport os\nfrom datetime import timedelta\n{imports}\n"
    head += 'from airflow.sdk import DAG, task\n\nwith DAG("hundred"):\n'
    return head + "".join(functions)


def measure(size: Size) -> Iterator[Figure]:
    sys.dont_write_bytecode = False  # users have it
    import_module("airflow.sdk").BaseSensorOperator  # noqa: B018  # it is loaded by its name
    import_module("airflow.sdk.bases.operator")
    gc.collect()
    say(f"DAG files of {COUNT} functions")
    files = {who: dag_file(who) for who in _GIVEN}
    title = f"DAG file of {COUNT} functions"
    yield from _no_slower(list(dag_files(title, files, size.repetitions)))
    yield from _sizes()
    for who in (OURS, FUNCTION, FULL):
        yield from submitted(who, size)
    yield from _watched(size)


def _no_slower(figures: list[Figure]) -> Iterator[Figure]:
    """The goal is what the other one takes."""
    theirs = {each.name: each.median for each in figures if each.who == KUBERNETES}
    for each in figures:
        ours = each.who == FUNCTION and each.unit == "ms"
        yield each._replace(goal=theirs[each.name]) if ours else each


def _sizes() -> Iterator[Figure]:
    from airflow_kftrain import build_manifest

    for who in (OURS, FUNCTION, FULL):
        task = OPERATORS[who]("default")
        task.workers = 3  # a template more
        task.read_files({})
        manifest = build_manifest(task.spec(), folder=task.files_folder())
        kibibytes = len(json.dumps(manifest).encode()) / 1024
        note = "of a master and workers" if who == FULL else ""
        yield Figure("bytes of a job's manifest", "KiB", (kibibytes,), who, note=note)


# ----- in a process of its own


async def watched(task: Task, turns: Turns) -> dict[str, Any]:
    """`task.name` is who has submitted the jobs."""
    from airflow_kftrain.function_payload.carrier import LIMIT

    server = await Server.start(task.jobs, LIMIT if task.name == FULL else 0)
    await first_client(task.setting)
    fleet, before = Fleet(task.setting), resident()
    found: dict[str, Any] = await _listed(fleet, server, turns)
    await fleet.start(task.jobs, _STARTS_A_SECOND)
    await asyncio.sleep(min(3.0, task.size.seconds))
    found["kib"] = (resident() - before) / task.jobs
    await server.do("change", rate=task.jobs * CHANGING_A_MINUTE / 60)
    found |= await a_minute(server, task.size.seconds)
    assert not fleet.ended, list(fleet.failed.items())[:3]
    await fleet.stop()
    await server.stop()
    return found


async def _listed(fleet: Fleet, server: Server, turns: Turns) -> dict[str, float]:
    """The first trigger lists the jobs of all."""
    forget_peak()
    held, cpu, began = peak(), time.process_time(), time.monotonic()
    turns.clear()
    await fleet.start(1, 1.0)
    assert await until(are_synced), "not all jobs are known"
    taken = {"seconds": time.monotonic() - began, "cpu": time.process_time() - cpu}
    stall, counts = max(turns.without_full), await server.do("read")
    listed = {"calls": counts["requests"], "bytes": counts["bytes answered"] / (1 << 20)}
    return {**taken, **listed, "stall": stall, "peak": peak() - held}


_SHOWN = (
    ("calls", "first list: API calls", "", ""),
    ("bytes", "first list: bytes", "MiB", ""),
    ("seconds", "first list: until all jobs are known", "s", ""),
    ("cpu", "first list: CPU", "s", ""),
    ("stall", "first list: longest stall", "ms", OF_A_TURN),
    ("peak", "first list: peak memory more than before", "MiB", ""),
    ("kib", "resident memory of a trigger", "KiB", "what it holds, and what it has held"),
    ("calls a minute", "API calls a minute, changing", "", ""),
    ("bytes a minute", "bytes answered a minute, changing", "MiB", ""),
    ("cpu a minute", "CPU a minute, changing", "s", ""),
)


def _watched(size: Size) -> Iterator[Figure]:
    jobs = min(1000, size.jobs[-1])
    say(f"a triggerer with {jobs} functions")
    tasks = [Task(who, WE, jobs, size) for who in (OURS, FULL)]
    # Each in a process of its own, since only a first list tells what one takes.
    ran = [together(__spec__.name, tasks) for _ in range(size.repetitions)]
    for task, found in zip(tasks, zip(*ran, strict=True), strict=True):
        yield from _figures(task, found)


def _figures(task: Task, found: Iterable[Mapping[str, float]]) -> Iterator[Figure]:
    for key, name, unit, note in _SHOWN:
        values = tuple(each[key] for each in found)
        yield Figure(name, unit, values, task.name, task.jobs, note=note)


if __name__ == "__main__":
    main(watched, measure)
