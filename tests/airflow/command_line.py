"""The command lines of Airflow and of this package, without the seconds that each start of Airflow
takes: one process imports it, and each command is a fork of that process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from importlib import import_module
from pathlib import Path

_ROOT = Path(__file__).parents[2]

# What the commands import in any version of Airflow.
_HEAVY = (
    "airflow.cli.cli_parser",
    "airflow.dag_processing.dagbag",
    "airflow.models.dagbag",
    "airflow.models.taskinstance",
    "airflow_kftrain.commands.render",
    "airflow_kftrain.commands.sweep",
    "airflow_kftrain.operators",
)


class CommandLine:
    """The command line of an Airflow with its own home."""

    def __init__(self, home: Path, process: subprocess.Popen[str]) -> None:
        self.home = home
        self._process = process

    def run(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Like subprocess.run."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([words, variables]), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        assert answer, f"the command line has ended, with {self._process.wait()}"
        said = ((self.home / name).read_text(encoding="utf-8") for name in ("stdout", "stderr"))
        return subprocess.CompletedProcess(words, int(answer), *said)


def settings_of(home: Path) -> dict[str, str]:
    """The settings that differ from those of the tests' own Airflow."""
    said = {"AIRFLOW_HOME": str(home), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    return {**os.environ, **said}


@contextmanager
def started(home: Path) -> Iterator[CommandLine]:
    with subprocess.Popen(
        [sys.executable, "-m", __name__],
        cwd=_ROOT,
        env=settings_of(home),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield CommandLine(home, process)


def _serve() -> None:
    answers = sys.stdout
    # As our commands do it, since Airflow's loggers keep the streams that they find.
    with redirect_stdout(sys.stderr):
        for name in _HEAVY:
            with suppress(ImportError):
                import_module(name)
    for line in sys.stdin:
        words, variables = json.loads(line)
        process = os.fork()
        if not process:
            os.environ.update(variables)
            _become(words)
        _, status = os.waitpid(process, 0)
        print(os.waitstatus_to_exitcode(status), file=answers, flush=True)


def _become(words: list[str]) -> None:
    """Ends the process as the command does."""
    home = Path(os.environ["AIRFLOW_HOME"])
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # the next commands are for the parent
    for number, name in enumerate(("stdout", "stderr"), 1):
        with open(home / name, "wb") as file:
            os.dup2(file.fileno(), number)
    sys.argv = words
    module = "airflow.__main__" if words[0] == "airflow" else "airflow_kftrain.__main__"
    main: Callable[[], int | None] = import_module(module).main
    sys.exit(main())


if __name__ == "__main__":
    _serve()
