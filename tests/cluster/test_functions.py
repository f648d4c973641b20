"""What becomes of what a function returns or raises, on a cluster."""

from __future__ import annotations

import contextlib
import os
import re
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import task

from airflow_kftrain import Code, Lifecycle, Mpirun, Timeouts
from airflow_kftrain.operators.training_job import BaseTrainingJobOperator
from airflow_kftrain.ownership import read_claim
from airflow_kftrain.specs import timeouts
from airflow_kftrain.watching import leader_log
from tests.cluster.operated import ERRORS, Instance, Operated, execute
from tests.cluster.world import World, eventually
from tests.unit.function_payload.pod import pythons


@pytest.fixture
def operated(world: World, monkeypatch: pytest.MonkeyPatch) -> Operated:
    return Operated(world, monkeypatch)


def made(function: Any, *args: Any, **more: Any) -> BaseTrainingJobOperator:
    """The task of a function, on one master and two workers."""
    given = {
        "task_id": "train",
        "image": "python:3.12-slim",
        "workers": 2,
        "deferrable": False,
        **more,
    }
    found: BaseTrainingJobOperator = task.pytorch(**given)(function)(*args).operator
    return found


def train_job(runtime: str, **more: Any) -> BaseTrainingJobOperator:
    decorate: Any = task.trainjob(task_id="train", runtime=runtime, deferrable=False, **more)
    found: BaseTrainingJobOperator = decorate(returns)(10).operator
    return found


def returns(size: int) -> dict[str, Any]:
    return {"rank": os.environ["RANK"], "text": os.urandom(size).hex()}


def fills(size: int) -> str:
    return "x" * size


def matches(number: int) -> bool:
    match number:
        case 1:
            return True
    return False


def fails(rank: str) -> None:
    if os.environ["RANK"] == rank:
        raise ValueError(f"no data for rank {rank}")
    time.sleep(60)


def hangs() -> None:
    """Rank 0 is silent only when all ranks hang."""
    import socket
    import threading

    place, others = ("127.0.0.1", int(os.environ["MASTER_PORT"])), int(os.environ["WORLD_SIZE"]) - 1
    if os.environ["RANK"] == "0":
        with socket.create_server(place) as server:
            server.settimeout(0.5)
            while others:
                print("waiting for", others)  # noqa: T201
                with contextlib.suppress(TimeoutError):
                    server.accept()[0].close()
                    others -= 1
    else:
        while True:
            with contextlib.suppress(ConnectionRefusedError), socket.create_connection(place):
                break
            time.sleep(0.1)
    threading.Event().wait(300)


def uses_what_is_missing() -> None:
    import no_such_module_anywhere  # type: ignore[import-not-found]  # noqa: F401


def test_a_function_that_hangs_is_told_with_its_line(
    operated: Operated, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader_log, "LEAST_SECONDS", 1.0)
    monkeypatch.setattr(timeouts, "_LEAST_SILENCE", timedelta(0))
    task = made(hangs, timeouts=Timeouts(silence=timedelta(seconds=5)))
    with pytest.raises(ERRORS.AirflowException, match=r"Timeouts\.silence"):
        execute(task, Instance())
    told = capsys.readouterr().out
    line = hangs.__code__.co_firstlineno + 19
    for replica in ("master-0", "worker-0", "worker-1"):
        end = told[told.rindex(f"{replica}:") :]
        assert re.search(rf'File ".*test_functions.py", line {line} in hangs', end), told


def test_the_value_is_that_of_rank_0(operated: Operated) -> None:
    value = execute(made(returns, 10), Instance())
    assert value["rank"] == "0"
    assert len(value["text"]) == 20
    eventually(lambda: operated.jobs() == [], operated.jobs)


@pytest.mark.parametrize("size", [1, 4077], ids=["one-character", "a-full-message"])
def test_a_value_comes_back_however_long_it_may_be(operated: Operated, size: int) -> None:
    assert execute(made(fills, size, workers=0), Instance()) == "x" * size


def test_an_older_python_is_named_with_the_syntax_that_it_lacks(operated: Operated) -> None:
    old = [each for each in pythons() if "/3.8." in each or "/3.9." in each]
    if not old:
        pytest.skip("no Python 3.8 or 3.9 of pyenv here")
    with pytest.raises(ERRORS.AirflowException) as caught:
        execute(made(matches, 1, workers=0, code=Code(python=old[0])), Instance())
    headline = str(caught.value).splitlines()[0]
    assert "SyntaxError" in headline
    assert re.search(r"\(Python 3\.[89]\.\d+ here, 3\.\d+ in Airflow\)", headline)


def test_the_earliest_exception_is_the_headline_with_its_line(
    operated: Operated, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ERRORS.AirflowException) as caught:
        execute(made(fails, "2"), Instance())
    assert type(caught.value) is ERRORS.AirflowException  # a retry may help
    headline = "The PyTorchJob failed: ValueError: no data for rank 2, in rank 2 in worker-1."
    assert str(caught.value).startswith(headline)
    told = capsys.readouterr().out
    report = told[told.index(headline) :]
    line = fails.__code__.co_firstlineno + 2
    assert f'File "test_functions.py", line {line}, in fails' in report
    assert 'raise ValueError(f"no data for rank {rank}")' in report
    assert "KFTRAIN" not in report.partition("The end of its log")[0]
    assert read_claim(operated.job()).delivered


def test_an_exception_that_is_fatal_is_not_retried(operated: Operated) -> None:
    with pytest.raises(ERRORS.AirflowFailException, match=r"Code\.fatal names this exception"):
        execute(made(fails, "0", code=Code(fatal=["ValueError"])), Instance(retries=2))


def test_a_value_that_is_too_large_fails_for_good_and_the_job_is_kept(operated: Operated) -> None:
    with pytest.raises(ERRORS.AirflowFailException) as caught:
        execute(made(returns, 9000), Instance(retries=2))
    assert "it is too large: 18" in str(caught.value)
    assert "Write it to a store, and return its location. The job is kept." in str(caught.value)
    assert read_claim(operated.job()).delivered


def test_a_module_that_is_missing_is_named(operated: Operated) -> None:
    with pytest.raises(ERRORS.AirflowException) as caught:
        execute(made(uses_what_is_missing, workers=0), Instance())
    assert "No module named 'no_such_module_anywhere'" in str(caught.value)


@pytest.mark.parametrize(
    ("files", "told"),
    [
        (
            ["big.bin", "nets.py"],
            r"code: is too large: .* The largest parts are big.bin \(40,000 bytes\)",
        ),
        (["nowhere.py"], r"code.files\[0\]: there is no such file.*nowhere.py"),
        (["linked"], r"code.files\[0\]: a symbolic link leads out of the folder"),
    ],
    ids=["too-large", "missing", "link"],
)
def test_files_that_cannot_be_carried_are_refused_before_anything_is_created(
    operated: Operated,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    files: list[str],
    told: str,
) -> None:
    folder = tmp_path / "dags"
    (folder / "linked").mkdir(parents=True)
    (folder / "big.bin").write_bytes(os.urandom(40_000))
    (folder / "nets.py").write_text("WIDTH = 3\n")
    (tmp_path / "outside.py").write_text("SECRET = 1\n")
    (folder / "linked" / "link.py").symlink_to(tmp_path / "outside.py")
    monkeypatch.chdir(folder)  # the folder of a task without a DAG
    with pytest.raises(ERRORS.AirflowFailException, match=told):
        execute(made(returns, 10, code=Code(files=files)), Instance(retries=2))
    assert operated.jobs() == []


def returns_no_json() -> dict[str, Any]:
    return {"history": [1.0, {2.0}]}


def test_a_value_that_is_no_json_fails_for_good_by_the_path_to_it(operated: Operated) -> None:
    with pytest.raises(ERRORS.AirflowFailException) as caught:
        execute(made(returns_no_json, workers=0), Instance(retries=2))
    assert "result['history'][1] is of type set: return numbers, strings, lists" in str(
        caught.value
    )
    assert read_claim(operated.job()).delivered


def test_pip_that_fails_is_the_headline(operated: Operated) -> None:
    code = Code(requirements=["no-such-package-anywhere"], pip_args=["--no-index"])
    with pytest.raises(ERRORS.AirflowException) as caught:
        execute(made(returns, 10, workers=0, code=code), Instance())
    assert "pip could not install no-such-package-anywhere" in str(caught.value).splitlines()[0]


def test_without_mpirun_the_launcher_of_a_runtime_with_mpi_fails(operated: Operated) -> None:
    """It has no code, and says so in its log. The report has no more than its name: such a pod has
    none of our labels, and is deleted with its job."""
    with pytest.raises(ERRORS.AirflowException) as caught:
        execute(train_job("deepspeed-distributed"), Instance())
    assert "-launcher-0" in str(caught.value).splitlines()[0]


def test_mpirun_is_not_for_torchs_runtime(operated: Operated) -> None:
    """Trainer takes such a job, and cannot make its launcher."""
    with pytest.raises(ERRORS.AirflowException) as caught:
        execute(train_job("torch-distributed", mpirun=Mpirun()), Instance())
    headline = str(caught.value).splitlines()[0]
    assert "mpirun= is for a runtime with MPI, and this is a torch runtime" in headline


def test_a_retry_goes_on_with_the_job_of_the_same_function(operated: Operated) -> None:
    first = Instance(retries=1)
    job = made(returns, 10, wait_for_completion=False)
    execute(job, first)
    (name,) = [each["metadata"]["name"] for each in operated.jobs()]
    second = Instance(before=first)
    execute(made(returns, 10, lifecycle=Lifecycle(on_finish="keep")), second)
    assert [each["metadata"]["name"] for each in operated.jobs()] == [name]
