"""The runner as it runs in a pod: real processes, with every Python of this machine."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import tempfile
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from airflow_kftrain import Code
from airflow_kftrain.function_payload.carrier import BOOT, programs
from tests.unit.function_payload.pod import Pod, Ran, pythons


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return Pod(tmp_path)


@pytest.mark.parametrize("python", pythons())
def test_a_value_and_an_exception_come_back_from_every_python(tmp_path: Path, python: str) -> None:
    pod = Pod(tmp_path, python)
    ran = pod.load("return {'sum': sum(args[0])}", args=[[1, 2.5]]).run()
    assert (ran.code, ran.returned.value) == (0, {"sum": 3.5})
    again = Pod(tmp_path / "again", python)
    again.place.mkdir()
    ran = again.load("raise KeyError('nothing')").run()
    assert ran.code == 1
    assert ran.raised.headline == "KeyError: 'nothing', in rank 0"
    assert 'File "dag.py", line 11, in train' in ran.raised.text
    assert "kftrain/modules" not in ran.message
    assert "KeyError" in ran.log


def test_only_rank_0_leaves_a_value(pod: Pod) -> None:
    assert pod.load("return 1").run(RANK="3").message == ""


@pytest.mark.parametrize(
    ("config", "leads"),
    [
        ({"cluster": {"worker": ["a", "b"]}, "task": {"type": "worker", "index": 0}}, True),
        ({"cluster": {"worker": ["a", "b"]}, "task": {"type": "worker", "index": 1}}, False),
        (
            {"cluster": {"chief": ["c"], "worker": ["a"]}, "task": {"type": "chief", "index": 0}},
            True,
        ),
        (
            {"cluster": {"chief": ["c"], "worker": ["a"]}, "task": {"type": "worker", "index": 0}},
            False,
        ),
        ({"cluster": {"ps": ["p"], "worker": ["a"]}, "task": {"type": "ps", "index": 0}}, False),
    ],
)
def test_the_chief_of_tensorflow_leads_else_worker_0(pod: Pod, config: Any, leads: bool) -> None:
    ran = pod.load("return 1").run(TF_CONFIG=json.dumps(config))
    assert bool(ran.message) is leads


def test_several_ranks_of_one_pod_and_the_earliest_exception_counts(pod: Pod) -> None:
    pod.load("1 / 0")
    line = " ".join(f"'{word}'" for word in pod.rank[:2]) + f" '{BOOT}' "
    line += " ".join(pod.rank[3:])
    ran = pod.run("sh", "-c", f"for n in 2 0 1; do RANK=$n {line}; done; exit 1")
    assert ran.raised.headline == "ZeroDivisionError: division by zero, in rank 2"


def test_the_last_start_of_torchruns_processes_counts(pod: Pod) -> None:
    pod.load("import os; raise ValueError(os.environ['TORCHELASTIC_RESTART_COUNT'])")
    line = " ".join(f"'{word}'" for word in pod.rank[:2]) + f" '{BOOT}' "
    line += " ".join(pod.rank[3:])
    each = f"RANK=$n LOCAL_RANK=0 TORCHELASTIC_RESTART_COUNT=$n {line}"
    assert pod.run("sh", "-c", f"for n in 0 1; do {each}; done; exit 1").raised.headline == (
        "ValueError: 1, in rank 1"
    )


@pytest.mark.parametrize(
    ("body", "code"),
    [("raise SystemExit(7)", 7), ("import sys; sys.exit('no')", 1), ("import os; os._exit(9)", 9)],
)
def test_an_exit_is_an_exit_code(pod: Pod, body: str, code: int) -> None:
    ran = pod.load(body).run()
    assert (ran.code, ran.message) == (code, "")


def test_a_signal_that_ends_the_rank_is_an_exit_code(pod: Pod) -> None:
    assert pod.load("import os, signal; os.kill(os.getpid(), signal.SIGKILL)").run().code == 137


def test_signals_reach_the_ranks(pod: Pod) -> None:
    process = pod.load(
        "import signal, sys, time\n"
        "    signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))\n"
        "    print('ready', flush=True); time.sleep(40)"
    ).start()
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 3
    process.stdout.close()


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("return {'a': [1, object()]}", "result['a'][1] is of type object"),
        ("return {1: 2}", "result has the key 1: use strings as keys"),
        ("return float('nan')", "result is nan, which Airflow cannot store"),
        ("return 2 ** 70", "which Airflow cannot store"),
        ("import os; return os.urandom(9000).hex()", "it is too large: 18002 bytes in JSON"),
    ],
)
def test_a_value_that_cannot_be_the_tasks_is_no_failure_of_the_job(
    pod: Pod, body: str, problem: str
) -> None:
    ran = pod.load(body).run()
    assert ran.code == 0
    assert problem in ran.returned.problem


@pytest.mark.parametrize("size", [1, 4000, 4077, 4078, 100_000])
def test_a_value_comes_back_whole_and_compressed_where_it_has_to_be(pod: Pod, size: int) -> None:
    ran = pod.load(f"return 'x' * {size}").run()
    assert ran.returned.value == "x" * size
    assert len(ran.message.encode()) <= 4096


def test_numbers_of_arrays_are_numbers(pod: Pod) -> None:
    body = "return type('float32', (), {'shape': (), 'item': lambda self: 0.5})()"
    assert pod.load(body).run().returned.value == 0.5


def test_a_long_exception_is_cut_to_what_kubernetes_keeps(pod: Pod) -> None:
    ran = pod.load("raise ValueError('\u4e2d' * 9000)").run()
    assert len(ran.message.encode()) <= 4096
    assert ran.raised.headline.startswith("ValueError: \u4e2d\u4e2d")


@pytest.mark.parametrize(
    ("names", "fatal"),
    [(["LookupError"], True), (["builtins.KeyError"], True), (["OSError"], False)],
)
def test_an_exception_may_be_fatal(pod: Pod, names: Sequence[str], fatal: bool) -> None:
    assert pod.load("raise KeyError(1)", Code(fatal=names)).run().raised.fatal is fatal


def test_files_are_in_the_working_directory_and_first_on_the_path(pod: Pod) -> None:
    (pod.place / "json5nets").mkdir()
    (pod.place / "json5nets" / "__init__.py").write_text("A = 1\n")
    pod.load(
        "import json5nets, os, sys; return [json5nets.A, os.listdir('json5nets')[0], sys.path[0]]",
        Code(files=["json5nets"]),
    )
    ran = pod.run()
    assert ran.returned.value[0] == 1
    assert ran.returned.value[2] == str(pod.work)


def test_a_command_finds_its_files_and_writes_its_own_result(pod: Pod) -> None:
    (pod.place / "run.sh").write_text("#!/bin/sh\necho 5 > $KFTRAIN_RESULT_FILE\n")
    (pod.place / "run.sh").chmod(0o755)
    ran = pod.load(code=Code(files=["run.sh"])).run("./run.sh")
    assert (ran.code, ran.message) == (0, "5\n")


@pytest.mark.parametrize(("command", "code"), [("nowhere-to-be-found", 127), ("./plain", 126)])
def test_a_command_that_cannot_be_started_has_the_shells_exit_code(
    pod: Pod, command: str, code: int
) -> None:
    (pod.place / "plain").write_text("")
    assert pod.load(code=Code(files=["plain"])).run(command).code == code


def test_a_module_that_is_missing_is_named(pod: Pod) -> None:
    ran = pod.load("import nowhere_at_all").run()
    assert ran.raised.headline == (
        "ModuleNotFoundError: No module named 'nowhere_at_all', in rank 0"
    )


def test_pip_that_fails_says_so_before_anything_starts(pod: Pod) -> None:
    code = Code(requirements=["no such package"], pip_args=["--no-index"])
    ran = pod.load("print('started')", code).run()
    assert ran.code == 1
    assert ran.raised.headline.startswith("pip could not install no such package")
    assert "started\n" not in ran.log


def tiny_package(folder: Path) -> str:
    wheel = folder / "tinypackage-1-py3-none-any.whl"
    about = {"METADATA": "Metadata-Version: 2.1\nName: tinypackage\nVersion: 1\n", "RECORD": ""}
    about["WHEEL"] = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("tinypackage.py", "A = 4\n")
        for name, text in about.items():
            file.writestr(f"tinypackage-1.dist-info/{name}", text)
    return str(wheel)


def test_pip_installs_where_the_function_finds_it(pod: Pod) -> None:
    python = next((each for each in pythons()[1:] if "/3.11." in each), None)
    if python is None:
        pytest.skip("no Python here but that of a virtual environment")
    code = Code(requirements=[tiny_package(pod.place)], pip_args=["--no-index"])
    made = Pod(pod.place, python).load("import tinypackage; return tinypackage.A", code)
    assert made.run().returned.value == 4


SYSTEM = "/usr/bin/python3"
_READ_ONLY = """
mount --bind "$1" "$1" && mount -o remount,bind,ro / && cd / && shift && exec "$@"
"""
"""Only the folder of the pod can be written. It needs root."""


def cannot_mount() -> str:
    """Why this machine cannot start a process with a read-only root file system, or ""."""
    words = ["unshare", "--mount", "setpriv", "--reuid=1000", "--clear-groups"]
    try:
        ran = subprocess.run([*words, SYSTEM, "-m", "pip", "--version"], capture_output=True)
    except OSError as error:
        return str(error)
    return ran.stderr.decode().strip() if ran.returncode else ""


@pytest.mark.parametrize("user", [0, 12345], ids=["root", "another-user"])
def test_a_pod_needs_no_more_than_its_own_folder(user: int) -> None:
    """With a read-only root file system, and as a user whom the image does not know."""
    if problem := cannot_mount():
        pytest.skip(f"no read-only file system here: {problem}")
    with tempfile.TemporaryDirectory() as folder:  # that of pytest is closed to other users
        place = Path(folder)
        place.chmod(0o777)
        body = "import os, tempfile, tinypackage; tempfile.TemporaryFile(); open('own', 'w')"
        told = "[tinypackage.A, os.getuid(), os.access('/var', os.W_OK), os.getcwd()]"
        code = Code(requirements=[tiny_package(place)], pip_args=["--no-index"], python=SYSTEM)
        pod = Pod(place, SYSTEM).load(f"{body}; return {told}", code)
        words = ["unshare", "--mount", "sh", "-c", _READ_ONLY, "sh", str(place)]
        words += ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--"]
        words += [*pod.rank[:-1], "run", *pod.rank]
        env = {"PATH": "/usr/bin:/bin", "HOME": "/", "KFTRAIN_RESULT_FILE": str(pod.message)}
        ended = subprocess.run(words, env=env, capture_output=True, text=True)
        ran = Ran(ended.returncode, ended.stdout + ended.stderr, pod.message)
        assert ran.returned.value == [4, user, False, str(pod.work)]


def test_a_rank_without_a_parent_prepares_its_pod_and_prints_frames(pod: Pod) -> None:
    """As those of MPI, which a remote shell starts in other pods."""
    body = "print('50%', end='\\r'); print('[x] done'); return list(range(600))"
    ran = pod.load(body, frames=True).run(OMPI_COMM_WORLD_RANK="0")
    assert ran.returned.value == list(range(600))
    assert "kftrain" not in ran.log
    assert "[x] done" in ran.log


def test_frames_are_found_within_lines_and_those_that_are_broken_are_left_out(pod: Pod) -> None:
    pod.load("return 'value'", frames=True)
    done = subprocess.run(pod.rank, capture_output=True, env={**os.environ, "PMI_RANK": "0"})
    frame = done.stdout.decode().splitlines()[-1]
    (pod.place / "said").write_text(f"[1,0]<stdout>:{frame}|\nlast")
    ran = pod.run("cat", str(pod.place / "said"))
    assert ran.returned.value == "value"
    assert ran.log == "[1,0]<stdout>:|\nlast"
    ran.file.unlink()
    (pod.place / "said").write_text(frame.replace("]", "A]"))
    assert pod.run("cat", str(pod.place / "said")).message == ""


@pytest.mark.parametrize("first", [0, 100, 2000])
def test_a_value_survives_that_mpirun_cuts_its_frames(pod: Pod, first: int) -> None:
    """mpirun passes on 4096 bytes of a rank at most, with output of other ranks in between."""
    text = "".join(random.Random(1).choices("0123456789abcdef", k=5000))
    pod.load(f"return {text!r}", frames=True)
    done = subprocess.run(pod.rank, capture_output=True, env={**os.environ, "PMI_RANK": "0"})
    said = b"x" * first + done.stdout
    parts = [said[start : start + 4096] for start in range(0, len(said), 4096)]
    (pod.place / "said").write_bytes(b"rank 1 [7]\n".join(parts))
    assert pod.run("cat", str(pod.place / "said")).returned.value == text


def test_a_value_of_which_a_part_is_lost_is_none_that_is_returned(pod: Pod) -> None:
    text = "".join(random.Random(1).choices("0123456789abcdef", k=5000))
    pod.load(f"return {text!r}", frames=True)
    done = subprocess.run(pod.rank, capture_output=True, env={**os.environ, "PMI_RANK": "0"})
    kept = [line for line in done.stdout.splitlines(keepends=True) if b" 3/" not in line]
    (pod.place / "said").write_bytes(b"".join(kept))
    problem = pod.run("cat", str(pod.place / "said")).returned.problem
    assert re.fullmatch(r"1 of its \d+ parts are lost in the log", problem)


def test_a_rank_of_a_container_before_leaves_nothing_to_the_next(pod: Pod) -> None:
    assert pod.load("raise ValueError").run().raised
    (pod.place / "message").unlink()
    assert pod.run("sh", "-c", "exit 4").message == ""


def test_processes_that_the_function_spawns_find_the_function(pod: Pod) -> None:
    pod.load(
        "import multiprocessing; pool = multiprocessing.get_context('spawn').Pool(2)\n"
        "    return sorted(pool.map(double, [1, 2]))\n"
        "def double(x):\n    return 2 * x"
    )
    assert pod.run().returned.value == [2, 4]


def test_they_are_short_enough_to_be_read() -> None:
    for name, source in programs().items():
        assert len(source.splitlines()) < 255, name


def test_signals_before_the_child_is_there_are_not_lost(pod: Pod) -> None:
    process = pod.load("import time; time.sleep(40)").start()
    time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode in (143, -signal.SIGTERM)


def test_without_a_command_it_starts_what_the_runtime_wants(pod: Pod, tmp_path: Path) -> None:
    """As in a TrainJob, which may have a torch runtime."""
    (tmp_path / "torchrun").write_text('#!/bin/sh\nshift\nRANK=0 WORLD_SIZE=7 exec "$@"\n')
    (tmp_path / "torchrun").chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    pod.load("import os; return os.environ.get('WORLD_SIZE')")
    assert pod.run_alone(PATH=path, PET_NNODES="2").returned.value == "7"
    assert pod.run_alone(PATH=path).returned.value is None


def test_a_pod_without_the_code_says_so(pod: Pod) -> None:
    """The launcher of a TrainJob under a runtime with MPI, without mpirun=."""
    ran = pod.run_alone()
    assert ran.code == 1
    assert "not mounted in this pod. Under a runtime with MPI a TrainJob needs mpirun=" in ran.log
    assert "Traceback" not in ran.log


def test_mpirun_under_a_torch_runtime_is_refused_before_anything_starts(pod: Pod) -> None:
    ran = pod.load("print('started')", frames=True).run(PET_NNODES="2")
    assert ran.code == 1
    assert ran.raised.headline.startswith("mpirun= is for a runtime with MPI")
    assert "started" not in ran.log
