"""A folder that stands for a pod's volumes, and the runner as it runs there: real processes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from airflow_kftrain import Code
from airflow_kftrain.function_payload.carrier import BOOT, make_payload
from airflow_kftrain.function_payload.message import (
    Raised,
    Returned,
    read_raised,
    read_returned,
)
from airflow_kftrain.specs.code import Function


def pythons() -> list[str]:
    found = [sys.executable]
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for minor in range(8, 15):
        found += [str(each) for each in sorted(root.glob(f"3.{minor}.*/bin/python"))]
    return found


class Pod:
    """A folder that stands for a pod's volumes."""

    def __init__(self, place: Path, python: str = sys.executable) -> None:
        self.place = place
        self.python = python
        self.message = place / "message"
        self.work = place / "work"

    def load(self, body: str = "", code: Code | None = None, **more: Any) -> Pod:
        """A new pod with a function `train` of this body, if any, and files of its folder."""
        shutil.rmtree(self.work, ignore_errors=True)
        self.message.unlink(missing_ok=True)
        function = None
        if body:
            source = "\n" * 9 + f"def train(*args, **kwargs):\n    {body}\n"
            arguments = json.dumps({"args": more.pop("args", []), "kwargs": {}})
            function = Function("train", "kftrain_dag", source, "dag.py", arguments)
        payload = make_payload(code, function, str(self.place), frames=more.pop("frames", False))
        (self.place / "payload").write_text(payload.text)
        return self

    @property
    def rank(self) -> list[str]:
        return [self.python, "-c", BOOT, str(self.place / "payload"), str(self.work), "rank"]

    def start(self, *command: str, **env: str) -> subprocess.Popen[str]:
        return self._started((*(command or self.rank),), env)

    def _started(self, command: tuple[str, ...], env: dict[str, str]) -> subprocess.Popen[str]:
        words = [*self.rank[:-1], "run", *command]
        given = {**os.environ, "KFTRAIN_RESULT_FILE": str(self.message), **env}
        return subprocess.Popen(
            words, env=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def run(self, *command: str, **env: str) -> Ran:
        return self._ended(self.start(*command, **env))

    def run_alone(self, **env: str) -> Ran:
        """Without a command."""
        return self._ended(self._started((), env))

    def _ended(self, process: subprocess.Popen[str]) -> Ran:
        log, _ = process.communicate(timeout=300)
        return Ran(process.returncode, log, self.message)


class Ran(NamedTuple):
    code: int
    log: str
    file: Path

    @property
    def message(self) -> str:
        return self.file.read_text(encoding="utf-8") if self.file.exists() else ""

    @property
    def returned(self) -> Returned:
        found = read_returned(self.message)
        assert found, (self.message, self.log)
        return found

    @property
    def raised(self) -> Raised:
        found = read_raised(self.message)
        assert found, (self.message, self.log)
        return found
