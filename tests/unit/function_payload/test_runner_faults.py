"""Functions that do what they should not, and pods in which things go wrong."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_kftrain import Code
from airflow_kftrain.function_payload.message import read_returned
from airflow_kftrain.function_payload.rank import returned
from tests.unit.function_payload.pod import Pod, pythons


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return Pod(tmp_path)


@pytest.fixture
def wheel(tmp_path: Path) -> Callable[[str, str], str]:
    """Makes a wheel of one module, and gives its path."""

    def make(name: str, source: str) -> str:
        file = tmp_path / f"{name}-1-py3-none-any.whl"
        about = {"METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n", "RECORD": ""}
        about["WHEEL"] = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr(f"{name}.py", source)
            for part, text in about.items():
                archive.writestr(f"{name}-1.dist-info/{part}", text)
        return str(file)

    return make


def of_no_venv() -> str:
    """A Python whose packages of users count."""
    found = [each for each in pythons()[1:] if "/3.11." in each]
    if not found:
        pytest.skip("no Python 3.11 of pyenv here")
    return found[0]


# What a function raises


def test_an_exception_whose_text_cannot_be_had(pod: Pod) -> None:
    ran = pod.load(
        "class Bad(Exception):\n"
        "        def __str__(self): raise RuntimeError('no text')\n"
        "    raise Bad"
    ).run()
    assert ran.code == 1
    assert ran.raised.headline == "Bad: (its message cannot be read: RuntimeError), in rank 0"
    assert 'File "dag.py", line 13, in train' in ran.raised.text


@pytest.mark.parametrize("sign", ["\U0001f600", "\u4e2d", "\x01", "\ud800"])
def test_a_text_of_long_characters_is_cut_in_its_middle(pod: Pod, sign: str) -> None:
    ran = pod.load(f"raise ValueError({sign!r} * 4000 + 'the end')").run()
    assert len(ran.message.encode()) <= 4096
    assert ran.raised.headline.startswith("ValueError: ")
    assert ran.raised.text.startswith("Traceback")
    assert ran.raised.text.endswith("the end")
    ran.raised.headline.encode()


@pytest.mark.parametrize("python", pythons())
def test_a_chain_of_very_many_exceptions(tmp_path: Path, python: str) -> None:
    pod = Pod(tmp_path, python).load(
        "error = None\n"
        "    for number in range(3000):\n"
        "        try: raise ValueError(number) from error\n"
        "        except ValueError as last: error = last\n"
        "    raise error"
    )
    assert pod.run().raised.headline == "ValueError: 2999, in rank 0"


@pytest.mark.parametrize("python", pythons())
def test_recursion_that_never_ends(tmp_path: Path, python: str) -> None:
    pod = Pod(tmp_path, python).load("again()\ndef again():\n    again()")
    raised = pod.run().raised
    assert raised.headline.startswith("RecursionError: maximum recursion depth exceeded")
    assert 'File "dag.py", line 13, in again' in raised.text


@pytest.mark.skipif(sys.version_info < (3, 11), reason="a Python without exception groups")
def test_the_exceptions_of_a_group_have_the_lines_of_the_dag_file(pod: Pod) -> None:
    ran = pod.load(
        "try: 1 / 0\n    except ZeroDivisionError as error:\n"
        "        raise ExceptionGroup('two', [error, OSError(2)]) from None"
    ).run()
    assert "kftrain/modules" not in ran.message
    assert "ZeroDivisionError: division by zero" in ran.raised.text


def test_a_syntax_that_the_images_python_lacks_names_both_versions(tmp_path: Path) -> None:
    old = [each for each in pythons() if "/3.8." in each or "/3.9." in each]
    if not old:
        pytest.skip("no Python 3.8 or 3.9 of pyenv here")
    ran = Pod(tmp_path, old[0]).load("match args:\n        case _: pass").run()
    assert ran.raised.headline.startswith("SyntaxError: ")
    assert f"(Python 3.{old[0].split('/3.')[1].split('.')[0]}." in ran.raised.headline
    assert "in Airflow)" in ran.raised.headline
    assert 'File "dag.py", line 11' in ran.raised.text


def test_a_cancelled_coroutine_is_an_exception(pod: Pod) -> None:
    ran = pod.load("import asyncio; raise asyncio.CancelledError('over')").run()
    assert ran.raised.headline == "CancelledError: over, in rank 0"


# How a function ends


@pytest.mark.parametrize("end", ["sys.exit(0)", "sys.exit()", "os._exit(0)"])
@pytest.mark.parametrize("frames", [False, True], ids=["in the pod", "of MPI"])
def test_an_exit_without_an_error_returns_nothing(pod: Pod, end: str, frames: bool) -> None:
    ran = pod.load(f"import os, sys; {end}", frames=frames).run()
    assert (ran.code, ran.returned.value, ran.returned.problem) == (0, None, "")


def test_a_crash_of_the_interpreter_is_an_exit_code(pod: Pod) -> None:
    ran = pod.load("import ctypes; ctypes.string_at(0)").run()
    assert (ran.code, ran.message) == (139, "")
    assert 'modules/kftrain_dag.py", line 11 in train' in ran.log


@pytest.mark.parametrize("frames", [False, True], ids=["in the pod", "of MPI"])
@pytest.mark.parametrize(
    "closing", ["sys.stdout.close(); sys.stderr.close()", "os.close(1); os.close(2)"]
)
def test_closed_outputs_lose_nothing(pod: Pod, closing: str, frames: bool) -> None:
    pod.load(f"import os, sys; {closing}; return 1", frames=frames)
    assert pod.run().returned.value == 1
    pod.load(f"import os, sys; {closing}; raise ValueError('no')", frames=frames)
    assert pod.run().raised.headline == "ValueError: no, in rank 0"


@pytest.mark.parametrize("frames", [False, True], ids=["in the pod", "of MPI"])
def test_a_fork_that_returns_too_has_no_say(pod: Pod, frames: bool) -> None:
    body = "import os; child = os.fork(); child and os.waitpid(child, 0); return bool(child)"
    assert pod.load(body, frames=frames).run().returned.value is True
    body = "import os; child = os.fork(); return (child and os.waitpid(child, 0)[1]) or 1 / child"
    assert pod.load(body, frames=frames).run().returned.value == 256


def test_threads_that_are_left_over_may_end(pod: Pod) -> None:
    body = (
        "import threading, time\n"
        "    threading.Thread(target=lambda: (time.sleep(0.5), print('done'))).start()\n"
        "    threading.Thread(target=lambda: time.sleep(900), daemon=True).start()\n"
        "    return 1"
    )
    ran = pod.load(body).run()
    assert (ran.returned.value, ran.log) == (1, "done\n")


@pytest.mark.parametrize(
    ("end", "code", "told"),
    [("raise ValueError('x')", 1, "ValueError: x"), ("exit(3)", 3, ""), ("exit('no')", 1, "no")],
)
def test_a_rank_of_mpi_that_fails_waits_for_no_other(
    pod: Pod, end: str, code: int, told: str
) -> None:
    """mpi4py waits for all ranks at the end of Python, and they may wait for this one."""
    ran = pod.load(f"import atexit, time; atexit.register(time.sleep, 600); {end}", frames=True)
    ended = ran.run(*ran.rank)
    assert ended.code == code
    assert told in ended.log
    assert ('"ValueError"' in ended.message) is ("raise" in end)


def test_a_process_that_is_left_over_holds_nothing_up(pod: Pod) -> None:
    """As what mpirun leaves behind: the launcher's pod has to end."""
    body = "import subprocess; return subprocess.Popen(['sleep', '900']).pid"
    process = pod.load(body, frames=True).start()
    assert process.wait(300) == 0
    found = read_returned(pod.message.read_text())
    assert found
    os.kill(found.value, signal.SIGTERM)
    process.communicate()


def test_another_working_directory_changes_nothing(pod: Pod) -> None:
    assert pod.load("import os; os.chdir('/'); return os.getcwd()").run().returned.value == "/"


def test_a_start_of_torchruns_leaves_nothing_to_the_next(pod: Pod) -> None:
    """Its processes may have other ranks when it starts them again."""
    pod.load("import os; return os.environ['RANK']")
    line = " ".join(f"'{word}'" for word in pod.rank)
    each = "RANK={} LOCAL_RANK=0 " + line
    assert pod.run("sh", "-c", f"{each.format(0)} && {each.format(1)}").message == ""
    pod.load("import os; return 1 / int(os.environ['RANK'])")
    line = f"{each.format(0)}; {each.format(1)}; exit 1"
    assert pod.run("sh", "-c", line).message == ""


# What it returns


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("10 ** 5000", "result is of 16610 bits"),
        ("{'k' * 9000: [object()]}", "result['kkk"),
        ("{'\\U0001f600' * 9000: [object()]}", "result['\U0001f600"),
        ("{'a': float('-inf')}", "result['a'] is -inf"),
        ("type('Odd', (), {'shape': (), 'item': lambda self: 1 / 0})()", "division by zero"),
        ("nested", "it is nested too deep"),
    ],
)
def test_a_value_that_is_none_says_why(pod: Pod, value: str, problem: str) -> None:
    ran = pod.load(f"nested = []; nested.append(nested); return {value}").run()
    assert ran.code == 0
    assert ran.returned.problem.startswith(problem)
    assert len(ran.message.encode()) <= 4096


@pytest.mark.parametrize("text", ["\ud800", "\0", "\u2028\n\U0001f600", "KFTRAIN {}\n"])
def test_any_text_comes_back_as_it_is(pod: Pod, text: str) -> None:
    assert pod.load(f"return [{text!r}]").run().returned.value == [text]


def test_values_at_the_border_come_back_or_are_refused() -> None:
    chance = random.Random(1)
    fitted = set()
    for size in range(2000, 5200, 7):
        value = "".join(chance.choice("0123456789abcdefghijklmnopqrstuv") for _ in range(size))
        said = returned(value)
        found = read_returned(said)
        assert found
        assert len(said.encode()) <= 4096
        assert found.value == value if not found.problem else "too large" in found.problem
        fitted.add(bool(found.problem))
    assert fitted == {False, True}


@pytest.mark.parametrize("frames", [False, True], ids=["in the pod", "of MPI"])
def test_megabytes_of_output_come_through(pod: Pod, frames: bool) -> None:
    line = "[kftrain [[k" * 100_000
    body = f"print('[kftrain [[k' * 100_000); print('[' * {5_000_000}, end=''); return 1"
    ran = pod.load(body, frames=frames).run()
    assert ran.returned.value == 1
    assert ran.log == f"{line}\n" + "[" * 5_000_000


# What is around it


def test_a_signal_ends_pip_too(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as index:  # that never answers
        url = f"http://127.0.0.1:{index.getsockname()[1]}/"
        code = Code(requirements=["nothing"], pip_args=["--index-url", url, "--timeout", "900"])
        pod = Pod(tmp_path, of_no_venv()).load("return 1", code)
        process = pod.start(PIP_FIND_LINKS="")
        index.settimeout(300)
        connection, _ = index.accept()
        process.send_signal(signal.SIGTERM)
        log, _ = process.communicate(timeout=300)
        connection.close()
    assert process.returncode == 143, log
    assert not pod.message.exists()


def test_a_pod_that_cannot_be_prepared_says_so(pod: Pod) -> None:
    pod.work.write_text("no folder")
    ran = pod.load("return 1").run()
    assert ran.code == 1
    assert ran.raised.headline.startswith("the pod could not be prepared: ")


def test_a_message_that_cannot_be_written_is_told(pod: Pod) -> None:
    ran = pod.load("return 1").run(KFTRAIN_RESULT_FILE="/dev/full")
    assert ran.code == 0
    assert "the termination message could not be written: " in ran.log


def test_a_rank_of_another_pod_takes_no_variables_for_a_preparation(pod: Pod) -> None:
    """horovodrun hands on all variables of the launcher's, whose paths are the same."""
    pod.load("return 1", frames=True)
    packages = str(pod.work / ".kftrain" / "packages")
    done = subprocess.run(pod.rank, env={**os.environ, "PYTHONUSERBASE": packages})
    assert done.returncode == 0


@pytest.mark.parametrize("frames", [False, True], ids=["in the pod", "of MPI"])
def test_files_that_are_called_as_standard_modules_break_nothing(pod: Pod, frames: bool) -> None:
    for name in ("json", "subprocess", "typing", "queue"):
        (pod.place / f"{name}.py").write_text("A = 5\n")
    code = Code(files=["json.py", "subprocess.py", "typing.py", "queue.py"])
    ran = pod.load("import queue; return queue.A", code, frames=frames).run()
    assert (ran.code, ran.returned.value) == (0, 5), ran.log


def test_files_go_before_packages_that_are_installed(
    pod: Pod, wheel: Callable[[str, str], str]
) -> None:
    (pod.place / "shadow.py").write_text("A = 'file'\n")
    code = Code(files=["shadow.py"], requirements=[wheel("shadow", "A = 'package'\n")])
    made = Pod(pod.place, of_no_venv()).load("import shadow; return shadow.A", code)
    assert made.run().returned.value == "file"


def test_packages_are_found_where_the_image_ignores_those_of_users(
    pod: Pod, wheel: Callable[[str, str], str]
) -> None:
    code = Code(requirements=[wheel("tinypackage", "A = 4\n")], pip_args=["--no-index"])
    made = Pod(pod.place, of_no_venv()).load("import tinypackage; return tinypackage.A", code)
    assert made.run(PYTHONNOUSERSITE="1").returned.value == 4


def test_processes_that_the_function_starts_find_its_files(pod: Pod) -> None:
    (pod.place / "tool.py").write_text("import helper; print(helper.A)\n")
    (pod.place / "helper.py").write_text("A = 6\n")
    body = (
        "import os, subprocess, sys; os.chdir('/')\n"
        "    return subprocess.check_output([sys.executable, '-m', 'tool']).decode()"
    )
    assert pod.load(body, Code(files=["tool.py", "helper.py"])).run().returned.value == "6\n"
