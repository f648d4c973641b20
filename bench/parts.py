"""The parts of the bench, each run in a process of its own, with a temporary Airflow home."""

from __future__ import annotations

import ast
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from bench.figures import Figure, read

ROOT = Path(__file__).resolve().parent.parent

PARTS = {
    "triggerer": "A triggerer",
    "ends": "From the end of a job to its event",
    "storms": "Storms",
    "submit": "Submitting",
    "imports": "Imports and DAG files",
    "manifests": "Manifests and statuses",
    "functions": "Functions as jobs",
    "progress": "Progress of running jobs",
    "real_airflow": "In a real Airflow",
    "local_cluster": "The embedded cluster",
}
"""The modules and their titles."""

LONGEST = {True: 300.0, False: 1200.0}
"""Seconds that a part may take: in a quick run, in a full one."""
ENDING = 30.0
"""Seconds for it to clean up."""
LAST_LINES = 15


class Ran(NamedTuple):
    """The result of one part."""

    part: str
    figures: tuple[Figure, ...]
    failure: str = ""
    """The end of its output, if it broke."""

    @property
    def title(self) -> str:
        return PARTS[self.part]

    @property
    def text(self) -> str:
        """The description of the part, from its docstring."""
        source = (ROOT / "bench" / f"{self.part}.py").read_text(encoding="utf-8")
        return ast.get_docstring(ast.parse(source)) or ""


def run_part(part: str, *, quick: bool) -> Ran:
    command = [sys.executable, "-m", f"bench.{part}", *(["--quick"] if quick else [])]
    last: deque[str] = deque(maxlen=LAST_LINES)
    with (
        tempfile.TemporaryDirectory(prefix="kftrain-bench-") as home,
        subprocess.Popen(
            command,
            cwd=ROOT,
            env=_environment(home),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # A terminal's Ctrl-C would reach it, too, and a second one would interrupt its cleaning
            # up.
            start_new_session=True,
        ) as process,
    ):
        telling = threading.Thread(target=_tell, args=(part, process.stderr, last))
        late = threading.Event()
        limit = threading.Timer(LONGEST[quick], _end, [process, late])
        telling.start()
        limit.start()
        try:
            assert process.stdout is not None
            figures = tuple(map(read, process.stdout))
            process.wait()
        finally:
            limit.cancel()
            _end(process)
            telling.join()
    if process.returncode == 0 and figures:
        return Ran(part, figures)
    too_long = f"It took longer than {LONGEST[quick]:.0f} s.\n" if late.is_set() else ""
    said = f"exit code {process.returncode}, {len(figures)} figures"
    return Ran(part, figures, too_long + ("".join(last) or said))


def _end(process: subprocess.Popen[str], late: threading.Event | None = None) -> None:
    """Interrupts it, as Ctrl-C does, and kills what still runs afterwards."""
    if late is not None:
        late.set()
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(ENDING)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _environment(home: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_")}
    # Compiling everything each time is not what users see.
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    return {**kept, "AIRFLOW_HOME": home, "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}


def _tell(part: str, lines: Iterable[str], last: deque[str]) -> None:
    for line in lines:
        last.append(line)
        print(f"{part:<13} {line}", end="", file=sys.stderr, flush=True)
