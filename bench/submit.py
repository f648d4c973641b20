"""What it costs to submit a job: one in a new process, as on a worker, and many at once.

Both operators run as in Airflow, until the job exists: then ours defers, and the peer's returns.
Each job has one pod with the same container and is suspended, so the work of the cluster is not
measured. The additional call of our operator looks for the job of an earlier try, so that there are
never two. Calls, bytes and times are measured in separate runs.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import gc
import json
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import datetime, timezone
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from bench.figures import OURS, Figure, Size, run, say
from bench.forked import forked, processes
from bench.local_cluster import cluster
from bench.relay import Relay
from kftrain_local.api_client import ApiClient, read_kubeconfig
from kftrain_local.faults.proxy import FaultProxy

os.environ.setdefault("AIRFLOW__LOGGING__LOGGING_LEVEL", "WARNING")

PEER = "KubernetesJobOperator"
FUNCTION = "@task.pytorch"
FULL = f"{FUNCTION}, with all it can carry"
PROCESSES = 8
JOBS = {
    OURS: "/apis/kubeflow.org/v1/namespaces/{}/pytorchjobs",
    PEER: "/apis/batch/v1/namespaces/{}/jobs",
}
JOBS |= dict.fromkeys((FUNCTION, FULL), JOBS[OURS])
CONTAINER: dict[str, Any] = {"task_id": "train", "image": "registry.example.com/train:1.4"}
COMMAND = ["python", "train.py"]
FILLER = "filler.bin"
ENV = {f"VARIABLE_{number}": "x" * 40 for number in range(20)}


class Submits(NamedTuple):
    """The submits of one process."""

    milliseconds: tuple[float, ...]
    """CPU time of each."""
    errors: tuple[str, ...]


class TaskInstance:
    """Replaces Airflow's task instance, which exists only in a run."""

    dag_id, task_id = "bench", "train"
    map_index = -1
    try_number, max_tries = 1, 0

    def __init__(self, run_id: str) -> None:
        self.id = str(uuid.uuid4())
        self.run_id = run_id
        self.start_date = datetime.now(timezone.utc)

    def xcom_push(self, key: str, value: Any) -> None:
        json.dumps(value)


def our_operator(namespace: str) -> Any:
    from airflow_kftrain import PyTorchJobOperator

    return PyTorchJobOperator(**_of_ours(namespace), command=COMMAND)


def function_operator(namespace: str, **more: Any) -> Any:
    from airflow.sdk import task

    return task.pytorch(**_of_ours(namespace), **more)(train)(0.1, epochs=90).operator


def full_operator(namespace: str) -> Any:
    from airflow_kftrain import Code

    task = function_operator(namespace, code=Code(files=[FILLER]))
    # A task of a run has its DAG's folder.
    task.files_folder = filled_folder
    return task


def _of_ours(namespace: str) -> dict[str, Any]:
    from airflow_kftrain import RunPolicy

    return {
        **CONTAINER,
        "namespace": namespace,
        "env": ENV,
        "workers": 0,
        "deferrable": True,
        "run_policy": RunPolicy(suspend=True),
    }


def train(rate: float, epochs: int = 3) -> dict[str, float]:
    """The function of the jobs."""
    rank = int(os.environ["RANK"])
    losses = []
    for epoch in range(epochs):
        loss = rate * rank / (epoch + 1)
        losses.append(loss)
        print(json.dumps({"rank": rank, "epoch": epoch, "loss": loss}))
    return {"loss": min(losses), "epochs": float(epochs)}


@functools.lru_cache(maxsize=1)
def filled_folder() -> str:
    """With a file as large as a job can carry beside its function, to 500 bytes."""
    from airflow_kftrain import Code, InvalidSpec
    from airflow_kftrain.function_payload.carrier import LIMIT, make_payload
    from airflow_kftrain.function_payload.source import check_callable, take

    folder = tempfile.mkdtemp(prefix="kftrain-bench-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    function = take(
        check_callable(train), (), __file__, '{"args": [0.1], "kwargs": {"epochs": 90}}'
    )
    for size in range(LIMIT, 0, -500):
        (Path(folder) / FILLER).write_bytes(os.urandom(size))
        try:
            make_payload(Code(files=[FILLER]), function, folder, frames=False)
            return folder
        except InvalidSpec:
            continue
    raise AssertionError("nothing fits")


def peers_operator(namespace: str) -> Any:
    from airflow.providers.cncf.kubernetes.operators.job import KubernetesJobOperator

    return KubernetesJobOperator(
        **CONTAINER,
        namespace=namespace,
        cmds=COMMAND,
        env_vars=ENV,
        suspend=True,
        get_logs=False,  # it does not wait for pods
    )


OPERATORS: dict[str, Callable[[str], Any]] = {
    OURS: our_operator,
    FUNCTION: function_operator,
    FULL: full_operator,
    PEER: peers_operator,
}


def submits(who: str, kubeconfig: str, namespace: str, count: int) -> Submits:
    """In this process, one after the other."""
    from airflow.sdk.bases.operator import ExecutorSafeguard
    from airflow.sdk.exceptions import TaskDeferred

    connection = {"conn_type": "kubernetes", "extra": {"kube_config_path": kubeconfig}}
    os.environ["AIRFLOW_CONN_KUBERNETES_DEFAULT"] = json.dumps(connection)
    taken, errors = [], []
    for _ in range(count):
        began = time.process_time()
        task = OPERATORS[who](namespace)
        instance = TaskInstance(f"run-{uuid.uuid4()}")
        dag = SimpleNamespace(dag_id=instance.dag_id)
        # Airflow warns about operators that it does not execute itself.
        token = ExecutorSafeguard.tracker.set(task)
        try:
            task.execute({"ti": instance, "run_id": instance.run_id, "task": task, "dag": dag})
        except TaskDeferred:
            pass
        except Exception as error:  # noqa: BLE001  # it is counted
            errors.append(repr(error))
        finally:
            ExecutorSafeguard.tracker.reset(token)
        taken.append(1000 * (time.process_time() - began))
    return Submits(tuple(taken), tuple(errors))


def measure(size: Size) -> Iterator[Figure]:
    import_module("airflow.sdk").BaseOperator  # noqa: B018  # it is loaded by its name
    import_module("airflow.sdk.bases.operator")
    gc.collect()
    for who in (OURS, PEER):
        yield from submitted(who, size)


def submitted(who: str, size: Size) -> Iterator[Figure]:
    say(f"submits of {who}")
    with cluster() as (_, _, kubeconfig):
        yield from _alone(who, kubeconfig, size)
        yield from asyncio.run(_at_once(who, kubeconfig, size))


def _alone(who: str, kubeconfig: Path, size: Size) -> Iterator[Figure]:
    """The first submit and the tenth, each time in a new process."""
    runs = [forked(submits, who, str(kubeconfig), "default", 10) for _ in range(size.repetitions)]
    for each in runs:
        assert not each.errors, each.errors
    first = tuple(each.milliseconds[0] for each in runs)
    last = tuple(each.milliseconds[-1] for each in runs)
    yield Figure("CPU of the first submit of a process, imports included", "ms", first, who)
    yield Figure("CPU of a further submit of that process", "ms", last, who)


async def _at_once(who: str, kubeconfig: Path, size: Size) -> list[Figure]:
    count, each = (PROCESSES, 25) if size.repetitions > 1 else (2, 2)
    with processes(count) as pool:
        async with ApiClient(read_kubeconfig(kubeconfig)) as api:
            storm = _Storm(who, count, each, api, pool)
            await storm.submit(kubeconfig)  # imports are not counted
            runs = [await storm.submit(kubeconfig) for _ in range(size.repetitions)]
            seconds = tuple(taken for taken, _ in runs)
            async with FaultProxy(kubeconfig) as proxy:
                counted = await storm.submit(proxy.kubeconfig)
                calls = sum(proxy.calls.values())
            errors = [error for _, failed in (*runs, counted) for error in failed]
        sizes = await _bytes(who, kubeconfig, pool)
    title = f"{count * each} submits from {count} processes"
    return [
        Figure("API calls of a submit", "", (calls / (count * each),), who),
        Figure("bytes of a submit, to and fro", "KiB", (sizes,), who),
        Figure(f"{title}: until all stand", "s", seconds, who),
        Figure(f"{title}: API calls", "", (calls,), who),
        Figure(f"{title}: errors", "", (len(errors),), who, note="; ".join(sorted(set(errors)))),
    ]


class _Storm:
    """Submits from all processes at once, each time into a new namespace."""

    def __init__(
        self, who: str, count: int, each: int, api: ApiClient, pool: ProcessPoolExecutor
    ) -> None:
        self._who = who
        self._count = count
        self._each = each
        self._api = api
        self._pool = pool

    async def submit(self, kubeconfig: Path) -> tuple[float, Sequence[str]]:
        """Seconds until all jobs exist, and the errors."""
        name = f"storm-{uuid.uuid4().hex[:8]}"
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await self._api.create("/api/v1/namespaces", namespace)
        loop = asyncio.get_running_loop()
        began = time.monotonic()
        work = functools.partial(submits, self._who, str(kubeconfig), name, self._each)
        done = await asyncio.gather(
            *(loop.run_in_executor(self._pool, work) for _ in range(self._count))
        )
        seconds = time.monotonic() - began
        errors = [error for each in done for error in each.errors]
        found, _ = await self._api.list(JOBS[self._who].format(name))
        assert len(found) == self._count * self._each - len(errors), (len(found), errors)
        return seconds, errors


async def _bytes(who: str, kubeconfig: Path, pool: ProcessPoolExecutor) -> float:
    """KiB of one submit."""
    loop = asyncio.get_running_loop()
    with tempfile.TemporaryDirectory() as folder:
        async with Relay(kubeconfig, Path(folder) / "kubeconfig") as relay:
            work = functools.partial(submits, who, str(relay.kubeconfig), "default", 1)
            done = await loop.run_in_executor(pool, work)
            assert not done.errors, done.errors
            return relay.bytes / 1024


if __name__ == "__main__":
    run(measure)
