"""What the imports of a DAG file cost, and what a file with a hundred operators costs.

Each import is measured in a process forked from one that has loaded `airflow.sdk`, as Airflow forks
the processes that parse files and run tasks. Time is CPU time, so other load on the machine is not
counted. Memory is the process's own, without the pages of libraries, which processes share. Our
operators check their parameters when the file is parsed, and build the manifest.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from textwrap import dedent, indent

import airflow_kftrain
from bench.figures import OURS, Figure, Size, run, say
from bench.forked import forked

# Its log lines would come in between.
os.environ.setdefault("AIRFLOW__LOGGING__LOGGING_LEVEL", "WARNING")

PEER = "KubernetesJobOperator"
UNLIKE = "airflow-kftrain, no two operators alike"
"""Operators with the same parameters are checked once."""
ALL = "every public name"
"""Our operators, with all their parameters."""
PEER_MODULE = "airflow.providers.cncf.kubernetes.operators.job"
MODULES = (
    "airflow_kftrain",
    *(f"airflow_kftrain.{name}" for name in sorted(set(airflow_kftrain._MODULES.values()))),
    "airflow_kftrain.triggers.training_job",
)
COUNT = 100
GOAL_MILLISECONDS, GOAL_MEBIBYTES = 60, 5

_FILE = """
from datetime import timedelta
from airflow.sdk import DAG
{imports}
with DAG("hundred"):
    for number in range({count}):
{operator}
"""
_GIVEN = """\
        retries=2,
        execution_timeout=timedelta(hours=6),
        image="registry.example.com/train:1.4",
        env{suffix}={{"EPOCHS": "90", "DATA": "s3://bucket/data"}},
        deferrable=True,
"""
FILES = {
    OURS: (
        "from airflow_kftrain import PyTorchJobOperator, Resources",
        """\
    PyTorchJobOperator(
        task_id=f"train_{number}",
        command=["python", "train.py"],
        workers=3,
        container_resources=Resources(cpu=4, memory="16Gi", gpu=1),
"""
        + _GIVEN.format(suffix="")
        + "    )",
    ),
    PEER: (
        f"from {PEER_MODULE} import KubernetesJobOperator\n"
        "from kubernetes.client import V1ResourceRequirements",
        """\
    KubernetesJobOperator(
        task_id=f"train_{number}",
        cmds=["python", "train.py"],
        parallelism=4,
        completions=4,
        wait_until_job_complete=True,
        container_resources=V1ResourceRequirements(
            requests={"cpu": "4", "memory": "16Gi"},
            limits={"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "1"},
        ),
"""
        + _GIVEN.format(suffix="_vars")
        + "    )",
    ),
}


def measure(size: Size) -> Iterator[Figure]:
    # Users have the bytecode: compiling each time is not what they see.
    sys.dont_write_bytecode = False
    import_module("airflow.sdk").BaseSensorOperator  # noqa: B018  # it is loaded by its name
    gc.collect()
    say("imports")
    for who, target in ((OURS, ALL), (PEER, PEER_MODULE)):
        yield from _costs("import of operators", who, target, size.repetitions)
    for name in MODULES if size.repetitions > 1 else MODULES[:2]:
        yield from _costs("import of a module", name, name, size.repetitions)
    say(f"DAG files of {COUNT} operators")
    files = {who: dag_file(who) for who in FILES}
    files[UNLIKE] = (
        files[OURS].replace("train:1.4", "train:{number}").replace('image="', 'image=f"')
    )
    yield from dag_files(f"DAG file of {COUNT} operators", files, size.repetitions)


def _costs(name: str, who: str, target: str, repetitions: int) -> Iterator[Figure]:
    forked(_cost, target)  # writes bytecode
    taken = [forked(_cost, target) for _ in range(repetitions)]
    milliseconds, mebibytes, modules = zip(*taken, strict=True)
    ours = who == OURS
    goals = (GOAL_MILLISECONDS, GOAL_MEBIBYTES) if ours else (None, None)
    yield Figure(f"{name}: time", "ms", milliseconds, who, goal=goals[0])
    yield Figure(f"{name}: memory", "MiB", mebibytes, who, goal=goals[1])
    yield Figure(f"{name}: modules", "", modules, who)


def _cost(target: str) -> tuple[float, float, float]:
    def load() -> None:
        if target == ALL:
            for name in airflow_kftrain.__all__:
                getattr(airflow_kftrain, name)
        else:
            import_module(target)

    # Modules that this file has loaded itself do not count there.
    for name in [name for name in sys.modules if name.partition(".")[0] == "airflow_kftrain"]:
        del sys.modules[name]
    modules, memory = len(sys.modules), anonymous_mebibytes()
    taken = milliseconds(load)
    return taken, anonymous_mebibytes() - memory, len(sys.modules) - modules


def milliseconds(work: Callable[[], object]) -> float:
    """Of CPU time."""
    began = time.process_time()
    work()
    return 1000 * (time.process_time() - began)


def anonymous_mebibytes() -> float:
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Anonymous:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no line `Anonymous:`")


def dag_file(who: str) -> str:
    imports, operator = FILES[who]
    return dedent(_FILE).format(imports=imports, count=COUNT, operator=indent(operator, "    "))


def dag_files(title: str, files: Mapping[str, str], repetitions: int) -> Iterator[Figure]:
    """`files`: who has written it, and its text."""
    for name in ("dagbag", "processor"):
        import_module(f"airflow.dag_processing.{name}")
    with tempfile.TemporaryDirectory() as folder:
        for number, (who, text) in enumerate(files.items()):
            file = Path(folder) / f"dag_{number}.py"
            file.write_text(text, encoding="utf-8")
            taken = [forked(_parse, str(file)) for _ in range(repetitions)]
            first, again, kibibytes = zip(*taken, strict=True)
            yield Figure(f"{title}: parsed in a new process", "ms", first, who)
            yield Figure(f"{title}: parsed when all is imported", "ms", again, who)
            yield Figure(f"{title}: serialised", "KiB", kibibytes, who)


def _parse(file: str) -> tuple[float, float, float]:
    from airflow.dag_processing.dagbag import DagBag
    from airflow.serialization.serialized_objects import DagSerialization

    def parse() -> DagBag:
        return DagBag(dag_folder=file, safe_mode=False, load_op_links=False, known_pools=None)

    first = milliseconds(parse)
    # Airflow parses each time in a new process, which has not checked these parameters yet.
    if parsing := sys.modules.get("airflow_kftrain.operators.parsing"):
        parsing._passed.clear()
    again = milliseconds(parse)
    bag = parse()
    assert not bag.import_errors, bag.import_errors
    (dag,) = bag.dags.values()
    assert len(dag.tasks) == COUNT
    return first, again, len(json.dumps(DagSerialization.to_dict(dag)).encode()) / 1024


if __name__ == "__main__":
    run(measure)
