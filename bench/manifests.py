"""What it costs to build a manifest and to read a status: pure functions, one call at a time, with
the golden specs.

CPU time, the best of three rounds of calls, since other load only adds time. Specs with
files or a function are listed separately: most of their cost is reading and packing these, once per
task.
"""

from __future__ import annotations

import time
import timeit
from collections.abc import Callable, Iterator
from typing import Any

from airflow_kftrain import build_manifest
from airflow_kftrain.job_state import read_state
from airflow_kftrain.kinds import PYTORCH_JOB
from bench.figures import Figure, Size, run, say
from tests.unit.manifests.golden_specs import FILES, OWNED, OWNER, SPECS

CALLS = 100
GOAL_MANIFEST, GOAL_STATUS = 300, 50

STATUS: dict[str, Any] = {
    "metadata": {"creationTimestamp": "2026-11-21T09:00:00Z"},
    "spec": {"runPolicy": {"activeDeadlineSeconds": 3600}},
    "status": {
        "startTime": "2026-11-21T09:00:00Z",
        "completionTime": "2026-11-21T09:30:00Z",
        "conditions": [
            {
                "type": name,
                "status": status,
                "reason": f"PyTorchJob{name}",
                "message": f"PyTorchJob train is {name.lower()}.",
                "lastUpdateTime": "2026-11-21T09:30:00Z",
                "lastTransitionTime": "2026-11-21T09:30:00Z",
            }
            for name, status in (("Created", "True"), ("Running", "False"), ("Succeeded", "True"))
        ],
        "replicaStatuses": {"Master": {"succeeded": 1}, "Worker": {"succeeded": 4}},
    },
}


def measure(size: Size) -> Iterator[Figure]:
    say(f"manifests of {len(SPECS)} specs")
    each = {name: microseconds(_build(spec), size) for name, spec in SPECS.items()}
    ordered = sorted(each, key=lambda name: sorted(each[name])[size.repetitions // 2])
    with_more = [name for name in ordered if _carries(name)]
    of_objects = [name for name in ordered if name not in with_more]
    middle, slowest = of_objects[len(of_objects) // 2], of_objects[-1]
    owned = microseconds(_build(OWNED["owned-pytorch"][0], owner=OWNER), size)
    status = microseconds(lambda: read_state(PYTORCH_JOB, STATUS), size)
    yield Figure(
        "a manifest, the median spec", "µs", each[middle], goal=GOAL_MANIFEST, note=f"`{middle}`"
    )
    yield Figure(
        "a manifest, the slowest spec", "µs", each[slowest], goal=GOAL_MANIFEST, note=f"`{slowest}`"
    )
    yield Figure(
        "a manifest, the slowest spec with files or a function",
        "µs",
        each[with_more[-1]],
        note=f"`{with_more[-1]}`",
    )
    yield Figure("a manifest with its owner", "µs", owned, goal=GOAL_MANIFEST)
    yield Figure("reading a status", "µs", status, goal=GOAL_STATUS)


def _carries(name: str) -> bool:
    spec = SPECS[name]
    packs = spec.code is not None or getattr(spec, "function", None) is not None
    return packs or "file" in name


def microseconds(call: Callable[[], object], size: Size) -> tuple[float, ...]:
    timer = timeit.Timer(call, timer=time.process_time)
    calls = CALLS if size.repetitions > 1 else 10
    timer.timeit(calls // 10)
    return tuple(
        min(timer.repeat(repeat=3, number=calls)) / calls * 1e6 for _ in range(size.repetitions)
    )


def _build(spec: Any, **more: Any) -> Callable[[], object]:
    return lambda: build_manifest(spec, folder=str(FILES), **more)


if __name__ == "__main__":
    run(measure)
