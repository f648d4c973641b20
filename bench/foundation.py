"""Figures of the foundation: imports, manifests, status. `make bench` prints them.

Each import is timed in fresh interpreters, beside an empty one in the same run: trust the
difference and the ratio, not the milliseconds of one machine.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import timeit
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from airflow_kftrain import build_manifest  # noqa: E402
from airflow_kftrain.job_state import read_state  # noqa: E402
from airflow_kftrain.kinds import PYTORCH_JOB  # noqa: E402
from tests.unit.manifests.golden_specs import OWNED, OWNER, SPECS  # noqa: E402

ROUNDS = 15
EMPTY = "pass"
FACADE = "import airflow_kftrain"
AT_WORK = ("Operator", "Sensor")
PURE = (
    "import airflow_kftrain as k\n"
    f"[getattr(k, name) for name in k.__all__ if not name.endswith({AT_WORK})]"
)
# What `airflow.sdk` loads when it is used, any operator costs.
AIRFLOW = "from airflow.sdk import DAG, BaseOperator, BaseOperatorLink, BaseSensorOperator"
OPERATORS = "import airflow_kftrain as k; [getattr(k, name) for name in k.__all__]"
# Within one process: two that both load Airflow differ by more than what is to be measured.
MEASURED = """
import os, time
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
{before}
memory, start = resident(), time.perf_counter()
{code}
print(1000 * (time.perf_counter() - start), resident() - memory)
"""
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


def environment(bytecode: str) -> dict[str, str]:
    made = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode}
    # An installed package has its bytecode; compiling it anew each time is not what users see.
    made.pop("PYTHONDONTWRITEBYTECODE", None)
    return made


def start(code: str, bytecode: str) -> float:
    """Milliseconds of a fresh interpreter that runs `code`."""
    command = [sys.executable, "-c", code]
    return 1000 * timeit.timeit(
        lambda: subprocess.run(command, check=True, cwd=ROOT, env=environment(bytecode)), number=1
    )


def added(before: str, code: str, bytecode: str) -> tuple[float, float]:
    """Milliseconds and MiB that `code` takes in a fresh interpreter that has run `before`."""
    ran = subprocess.run(
        [sys.executable, "-c", MEASURED.format(before=before, code=code)],
        check=True,
        cwd=ROOT,
        env=environment(bytecode),
        capture_output=True,
        text=True,
    )
    milliseconds, mebibytes = ran.stdout.splitlines()[-1].split()
    return float(milliseconds), float(mebibytes)


def imports() -> Iterator[tuple[str, float, float]]:
    """Medians over an interpreter without the import, the three taken in turn; the first round
    writes bytecode and does not count."""
    taken: dict[str, list[float]] = {EMPTY: [], FACADE: [], PURE: []}
    with tempfile.TemporaryDirectory() as bytecode:
        for code in [*taken] * (ROUNDS + 1):
            taken[code].append(start(code, bytecode))
        operators = [added(AIRFLOW, OPERATORS, bytecode) for _ in range(ROUNDS + 1)][1:]
    empty = statistics.median(taken[EMPTY][1:])
    yield "import airflow_kftrain (ms)", statistics.median(taken[FACADE][1:]) - empty, 15
    yield "all nouns, specs, builders (ms)", statistics.median(taken[PURE][1:]) - empty, 60
    milliseconds, mebibytes = (
        statistics.median(figures) for figures in zip(*operators, strict=True)
    )
    yield "all operators over airflow.sdk (ms)", milliseconds, 60
    yield "all operators over airflow.sdk (MiB)", mebibytes, 5


def microseconds(call: Callable[[], object]) -> float:
    timer = timeit.Timer(call)
    number = 200
    return min(timer.repeat(repeat=7, number=number)) / number * 1e6


def calls() -> Iterator[tuple[str, float, float]]:
    """Best of seven, since a busy machine only ever adds."""
    names = [name for name in SPECS if "file" not in name]
    each = {name: microseconds(_build(SPECS[name])) for name in names}
    slowest = max(each, key=lambda name: each[name])
    owned = OWNED["owned-pytorch"][0]
    yield "a manifest, median of goldens (us)", statistics.median(each.values()), 300
    yield f"a manifest, slowest: {slowest} (us)", each[slowest], 300
    yield "a manifest with its owner (us)", microseconds(_build(owned, owner=OWNER)), 300
    yield "a status (us)", microseconds(lambda: read_state(PYTORCH_JOB, STATUS)), 50


def _build(spec: Any, **more: Any) -> Callable[[], object]:
    return lambda: build_manifest(spec, **more)


def main() -> None:
    figures = [*imports(), *calls()]
    if "--json" in sys.argv:
        print(json.dumps([{"figure": n, "value": v, "goal": g} for n, v, g in figures]))
        return
    print(f"{'figure':<55}{'value':>9}{'goal':>8}")
    for name, value, goal in figures:
        print(f"{name:<55}{value:>9.1f}{goal:>8.0f}{'' if value <= goal else '  MISSED'}")


if __name__ == "__main__":
    main()
