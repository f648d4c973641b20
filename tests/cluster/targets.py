"""What the suite runs on: a cluster with a node that runs pods, ready when it is entered."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tests.control_plane import ControlPlane
from tests.control_plane.api import Api

_ROOT = str(Path(__file__).parents[2])
_PATIENCE = 60
_NODE = ("--backoff", "0.5", "--cpu", "64", "--memory", "64Gi", "--gpus", "4")


class RealTarget:
    """The real control plane of a profile, and our node agent under it."""

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
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    @property
    def api(self) -> Api:
        return self.plane.api()

    @property
    def kubeconfig(self) -> Path:
        return self.plane.kubeconfig

    def forget_history(self) -> None:
        """What was before now is not to be had any more: events of old, lists in pages."""
        self.plane.forget_history()

    def check(self) -> None:
        """A dead part is named where it died, not by what fails later for want of it."""
        self.plane.check()
        self.agent.check()


class AgentProcess:
    """A node, from the moment it is ready; at its end nothing of it may be left."""

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
                [sys.executable, "-m", "airflow_kftrain.local.agent", *self._words],
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
