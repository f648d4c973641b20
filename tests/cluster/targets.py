"""The targets of the suite: clusters with a node that runs pods, ready when they are entered."""

from __future__ import annotations

import os
import re
import secrets
import shlex
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import yaml

from tests.control_plane import ControlPlane
from tests.control_plane.api import MERGE, Api
from tests.control_plane.processes import process_id

_ROOT = str(Path(__file__).parents[2])
_PATIENCE = 60
_HISTORY = 500
"""How many changes the embedded cluster remembers here; few, so that forgetting is fast."""
_NODE = ("--backoff", "0.5", "--cpu", "64", "--memory", "64Gi", "--gpus", "4")


class Target(Protocol):
    """`with` starts and stops it."""

    name: str
    api: Api
    kubeconfig: Path

    def __enter__(self) -> Target: ...

    def __exit__(self, *_: object) -> None: ...

    def forget_history(self) -> None:
        """Makes the cluster forget everything before now: old events, and lists in pages."""

    def check(self) -> None:
        """Names a part that has died, instead of what fails later without it."""


class RealTarget:
    """The real control plane of a profile, with our node agent."""

    name = "real"

    def __init__(self, profile: str) -> None:
        self.plane = ControlPlane(profile)
        self._undo = ExitStack()

    def __enter__(self) -> RealTarget:
        with ExitStack() as undo:
            undo.enter_context(self.plane)
            folder = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="kftrain-agent-")))
            self.agent = undo.enter_context(AgentProcess(self.plane.kubeconfig, folder))
            self._undo = undo.pop_all()
        self.api = self.plane.api()
        self.kubeconfig = self.plane.kubeconfig
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def forget_history(self) -> None:
        self.plane.forget_history()

    def check(self) -> None:
        self.plane.check()
        self.agent.check()

    def description(self) -> dict[str, Any]:
        """Everything that other processes need to use it, too (sharing.py)."""
        parts = {**self.plane.pids(), "the node agent": self.agent.process.pid}
        return {
            "kubeconfig": str(self.kubeconfig),
            "api": self.api.arguments,
            "etcd": self.plane.etcd().arguments,
            "parts": {name: process_id(pid) for name, pid in parts.items()},
        }


class AgentProcess:
    """A node, from the moment when it is ready. At its end nothing of it may be left."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        self.name = f"node-{secrets.token_hex(4)}"
        self.state = folder / "state"
        self._log = folder / "agent.log"
        self._words = ["--kubeconfig", str(kubeconfig), "--name", self.name]
        self._words += ["--state-dir", str(self.state), *_NODE]

    def __enter__(self) -> AgentProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        assert self.process.wait(_PATIENCE) == 0, self.log()
        assert not self.state.exists()

    def start(self) -> None:
        with open(self._log, "a", encoding="utf-8") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "kftrain_local.agent", *self._words],
                stderr=output,
                env={**os.environ, "PYTHONPATH": _ROOT, "SECRET_OF_THE_AGENT": "hush"},
            )
        end = time.monotonic() + _PATIENCE
        while "is ready" not in self.log():
            self.check()
            assert time.monotonic() < end, f"the agent does not start: {self.log()}"
            time.sleep(0.05)

    def log(self) -> str:
        return self._log.read_text(encoding="utf-8")

    def check(self) -> None:
        assert self.process.poll() is None, f"the agent has died: {self.log()}"


class LocalTarget:
    """The embedded cluster, as its command line starts it: in a process of its own."""

    name = "local"

    def __init__(self) -> None:
        self.cluster = f"test-{secrets.token_hex(4)}"
        self._undo = ExitStack()

    def __enter__(self) -> LocalTarget:
        words = ["up", "--name", self.cluster, "--history", str(_HISTORY), *_NODE]
        with ExitStack() as undo:
            self._output = Path(undo.enter_context(tempfile.NamedTemporaryFile()).name)
            with self._output.open("w", encoding="utf-8") as output:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "kftrain_local.command", *words],
                    stdout=output,
                    stderr=output,
                    cwd=_ROOT,
                    start_new_session=True,  # Ctrl-C is for the tests, which end it
                )
            undo.callback(self._end)
            end = time.monotonic() + _PATIENCE
            while "stop it:" not in self.said():  # the last line that it prints
                assert self._process.poll() is None, self.said()
                assert time.monotonic() < end, f"the cluster does not start: {self.said()}"
                time.sleep(0.02)
            self._undo = undo.pop_all()
        (kubeconfig,) = re.findall(r"KUBECONFIG=(\S+)", self.said())
        self.kubeconfig = Path(kubeconfig)
        config = yaml.safe_load(self.kubeconfig.read_text(encoding="utf-8"))
        self.api = Api(config["clusters"][0]["cluster"]["server"], None, None)
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()
        assert not self.kubeconfig.parent.exists()

    def _end(self) -> None:
        self._process.terminate()
        assert self._process.wait(_PATIENCE) == 0, self.said()

    def said(self) -> str:
        """What the command has printed."""
        return self._output.read_text(encoding="utf-8")

    def forget_history(self) -> None:
        path = self.api.path("v1", "Namespace", None, "default")
        for number in range(_HISTORY + 1):
            patch = {"metadata": {"annotations": {"number": str(number)}}}
            self.api.call("PATCH", path, patch, content_type=MERGE).required("a change")

    def check(self) -> None:
        assert self.api.call("GET", "/readyz").ok

    def airflow(self) -> dict[str, str]:
        """The variable that the command prints for Airflow."""
        (command,) = re.findall(r"Airflow: +export (.*)", self.said())
        (word,) = shlex.split(command)
        name, _, value = word.partition("=")
        return {name: value}
