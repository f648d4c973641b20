"""Functions as jobs, with real frameworks."""

from __future__ import annotations

import math
import random
import subprocess
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, task

from airflow_kftrain import Code, Elastic, Horovod, Timeouts
from tests.cluster.operated import ERRORS, Instance, Operated, execute
from tests.cluster.world import World
from tests.control_plane import MPI_OPERATOR
from tests.frameworks.roles import HOROVOD, PYTHON, TENSORFLOW

# Without the last two, torchrun of PyTorch 1.13 breaks on Python 3.11.
TORCH: Any = {"PET_REDIRECTS": "2", "PET_TEE": "2", "OMP_NUM_THREADS": "1"}

# A torchrun that looks at its ranks only every 5 seconds learns late that they have failed.
TORCHRUN: Any = {**TORCH, "PET_MONITOR_INTERVAL": "0.5"}


@pytest.fixture(autouse=True)
def operated(world: World, monkeypatch: pytest.MonkeyPatch) -> Operated:
    return Operated(world, monkeypatch)


def value_of(kind: str, function: Callable[..., Any], *args: Any, **given: Any) -> Any:
    """What the task of that function returns."""
    given = {"code": Code(python=PYTHON), "env": TORCH, "deferrable": False, **given}
    with DAG("frameworks", schedule=None) as dag:
        dag.fileloc = __file__
        made = getattr(task, kind)(task_id="train", **given)(function)(*args)
    return execute(made.operator, Instance())


def is_there(python: str, module: str) -> bool:
    """Without importing it, which takes seconds."""
    look = f"import importlib.util, sys; sys.exit(not importlib.util.find_spec({module!r}))"
    return Path(python).exists() and subprocess.run([python, "-c", look]).returncode == 0


# PyTorch


def trains_with_ddp(batch: int) -> dict[str, Any]:
    import tempfile

    import torch
    import torch.distributed as dist
    from parts import Numbers, write_square  # type: ignore[import-not-found]
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, DistributedSampler

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    numbers = Numbers(batch)
    sampler: Any = DistributedSampler(numbers, shuffle=False)
    loader = DataLoader(numbers, batch_size=batch, sampler=sampler, num_workers=2)
    model = torch.nn.Linear(1, 1, bias=False)
    trained = DistributedDataParallel(model)
    trained(next(iter(loader))).mean().backward()
    gradient = model.weight.grad
    all_gradients = [torch.empty_like(gradient) for _ in range(world)]
    dist.all_gather(all_gradients, gradient)

    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(write_square, (folder,), nprocs=2)
        with open(f"{folder}/1", encoding="utf-8") as file:
            square = int(file.read())
    dist.barrier()
    return {
        "rank": rank,
        "gradients": [each.item() for each in all_gradients],
        "mean": gradient.mean(),  # a tensor without dimensions, which is a number
        "square": square,
    }


def test_ranks_agree_on_the_mean_gradient(operated: Operated) -> None:
    code = Code(python=PYTHON, files=["parts.py"])
    value = value_of("pytorch", trains_with_ddp, 12, workers=2, image="x", code=code)
    mean = sum(range(12)) / 12
    assert value == {"rank": 0, "gradients": [mean] * 3, "mean": mean, "square": 1}


def fails_at_first() -> dict[str, Any]:
    import os

    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    starts = torch.zeros(dist.get_world_size(), dtype=torch.int64)
    starts[dist.get_rank()] = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    dist.all_reduce(starts)
    if dist.get_rank() == 3 and not starts.any():
        raise ValueError("not yet")
    dist.barrier()  # the job has succeeded as soon as the first pod has
    return {"rank": dist.get_rank(), "starts": starts.tolist()}


def test_torchrun_starts_a_rank_again_that_fails_once() -> None:
    elastic = Elastic(nodes=2, nproc_per_node=2, max_restarts=1)
    value = value_of("pytorch", fails_at_first, elastic=elastic, env=TORCHRUN, image="x")
    assert value["rank"] == 0
    assert len(value["starts"]) == 4
    # A torchrun counts the starts after a failure of its own ranks. Those of the other pod may be
    # started again before they notice that they have lost rank 3, or after.
    assert sorted(value["starts"]) in ([0, 0, 1, 1], [1, 1, 1, 1])


def test_the_exception_of_a_rank_of_torchrun_is_the_tasks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its pods restart until all of them have crashed a few times in a row."""
    elastic, timeouts = (
        Elastic(nodes=2, nproc_per_node=2),
        Timeouts(crash_loop=timedelta(seconds=1)),
    )
    given: dict[str, Any] = {"elastic": elastic, "timeouts": timeouts, "env": TORCHRUN}
    with pytest.raises(ERRORS.AirflowException) as caught:
        value_of("pytorch", fails_at_first, image="x", **given)
    assert "ValueError: not yet, in rank 3" in str(caught.value).splitlines()[0]
    line = fails_at_first.__code__.co_firstlineno + 11
    assert f'File "test_functions.py", line {line}, in fails_at_first' in capsys.readouterr().out


def sums_ranks() -> list[int]:
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    total = torch.tensor([dist.get_rank() + 1])
    dist.all_reduce(total)
    return [dist.get_world_size(), int(total)]


def test_a_train_job_of_torchs_runtime_runs_two_processes_on_each_of_two_nodes() -> None:
    given = {"runtime": "torch-distributed", "num_nodes": 2, "num_proc_per_node": 2}
    assert value_of("trainjob", sums_ranks, **given) == [4, 10]


# Open MPI

needs_mpi4py = pytest.mark.skipif(
    not is_there(PYTHON, "mpi4py"), reason="there is no mpi4py: scripts/install-frameworks"
)


def sums_ranks_with_mpi(text: str) -> dict[str, Any]:
    from mpi4py import MPI  # type: ignore[import-not-found]

    world = MPI.COMM_WORLD
    total = world.allreduce(world.rank + 1)
    if world.rank:
        for number in range(20_000):  # megabytes, while rank 0 hands over its value
            print(f"rank {world.rank} [{number}]" + "." * 100)  # noqa: T201
    return {"ranks": world.size, "sum": total, "rank": world.rank, "text": text}


def fails_in_rank_2() -> None:
    from mpi4py import MPI

    if MPI.COMM_WORLD.rank == 2:
        raise ValueError("no data for rank 2")
    MPI.COMM_WORLD.barrier()


@needs_mpi4py
@pytest.mark.profile(MPI_OPERATOR)
def test_the_value_of_rank_0_comes_whole_through_what_other_ranks_print() -> None:
    chance = random.Random(1)
    text = "".join(chance.choice("0123456789abcdef") for _ in range(5000))
    given = {"workers": 2, "slots_per_worker": 2, "image": "x", "env": None}
    value = value_of("mpi", sums_ranks_with_mpi, text, **given)
    assert value == {"ranks": 4, "sum": 10, "rank": 0, "text": text}


@needs_mpi4py
@pytest.mark.profile(MPI_OPERATOR)
def test_a_traceback_of_rank_2_of_4_has_the_lines_of_the_dag_file(
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = {"workers": 2, "slots_per_worker": 2, "image": "x", "env": None}
    with pytest.raises(ERRORS.AirflowException) as caught:
        value_of("mpi", fails_in_rank_2, **given)
    assert "ValueError: no data for rank 2, in rank 2" in str(caught.value).splitlines()[0]
    line = fails_in_rank_2.__code__.co_firstlineno + 4
    assert f'File "test_functions.py", line {line}, in fails_in_rank_2' in capsys.readouterr().out


# TensorFlow


def adds_up_with_tensorflow() -> dict[str, Any]:
    import json
    import os

    import tensorflow as tf  # type: ignore[import-untyped]

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]

    def mine() -> Any:
        return tf.constant(index + 1.0)

    found = strategy.run(tf.function(mine))  # which reads the source of its function
    total = strategy.reduce(tf.distribute.ReduceOp.SUM, found, axis=None)
    return {"replicas": strategy.num_replicas_in_sync, "sum": total.numpy(), "index": index}


@pytest.mark.skipif(
    not is_there(TENSORFLOW, "tensorflow"),
    reason="there is no TensorFlow: scripts/install-frameworks",
)
def test_the_workers_of_tensorflow_add_up_what_they_have() -> None:
    code = Code(python=TENSORFLOW)
    value = value_of("tensorflow", adds_up_with_tensorflow, workers=2, image="x", code=code)
    assert value["replicas"] == 2
    assert value["index"] == 0
    assert math.isclose(value["sum"], 3.0)


# Horovod

_HOROVOD_FILES = "/kftrain/work/horovod"
needs_horovod = pytest.mark.skipif(
    not Path(HOROVOD, "bin", "horovodrun").exists(),
    reason="there is no Horovod: WITH=horovod scripts/install-frameworks",
)


def with_horovod() -> dict[str, Any]:
    """Under the node agent a pod's volumes do not change, so the hosts come from a script of our
    own; and horovodrun finds the agent's remote shell under the name ssh."""
    python = f"{HOROVOD}/bin/python"
    settings = Horovod(discovery_script=f"{_HOROVOD_FILES}/hosts.sh", network_interface="lo")
    return {
        "workers": 2,
        "image": "x",
        "code": Code(python=python, files=["horovod"]),
        "env": {"PATH": f"{_HOROVOD_FILES}:{HOROVOD}/bin:/usr/bin:/bin"},
        "horovod": settings,
    }


def averages(start: float) -> dict[str, Any]:
    import horovod.torch as hvd  # type: ignore[import-not-found]
    import torch

    hvd.init()
    mean = hvd.allreduce(torch.tensor([start + hvd.rank()]), name="mean")
    return {"mean": mean.item(), "rank": hvd.rank(), "size": hvd.size()}


def fails_in_rank_1() -> None:
    import horovod.torch as hvd

    hvd.init()
    if hvd.rank() == 1:
        raise ValueError("no data for rank 1")
    hvd.join()


@needs_horovod
@pytest.mark.profile(MPI_OPERATOR)
def test_the_ranks_of_horovod_agree_on_the_mean() -> None:
    value = value_of("horovod", averages, 3.0, **with_horovod())
    assert value == {"mean": 3.5, "rank": 0, "size": 2}


@needs_horovod
@pytest.mark.profile(MPI_OPERATOR)
def test_the_exception_of_a_rank_of_horovod_is_the_tasks() -> None:
    with pytest.raises(ERRORS.AirflowException) as caught:
        value_of("horovod", fails_in_rank_1, **with_horovod())
    assert "ValueError: no data for rank 1, in rank 1" in str(caught.value).splitlines()[0]
