"""What all pods of an agent share: settings, the API, ports, events, the state folder."""

from __future__ import annotations

import asyncio
import logging
import secrets
import shlex
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, NamedTuple

from kftrain_local.agent.addresses import Ports
from kftrain_local.api_client import ApiClient, ApiFailure, Object, core
from kftrain_local.times import now_text

log = logging.getLogger(__name__)

NO_IMAGES = (
    "images are not run: the commands of pods run on this machine, as the user of the agent, and "
    "find this machine's programs and files"
)


class Settings(NamedTuple):
    """The settings of an agent."""

    name: str = "local"
    cpu: str = "8"
    memory: str = "32Gi"
    gpus: int = 0
    python: str = sys.executable
    """The interpreter that `python` and `python3` stand for in a command."""
    port: int = 0
    """The port of the log server; 0 means any free one."""
    labels: dict[str, str] = {}
    volumes: dict[str, str] = {}
    """Folders of PersistentVolumeClaims by name. Others get new ones, removed with the agent."""
    shortest_backoff: float = 10.0


class Machine:
    def __init__(self, api: ApiClient, settings: Settings, folder: Path) -> None:
        self.api = api
        self.settings = settings
        self.pods = folder / "pods"
        self._claims = folder / "claims"
        self.scratch = folder / "tmp"
        self.work_folder = str(Path.cwd())
        self.ports = Ports()
        self._tasks: set[asyncio.Task[None]] = set()
        self._told = False
        self.bin = folder / "bin"
        self.bin.mkdir(exist_ok=True)
        for name in ("python", "python3"):
            # With its full path, by which an interpreter finds its virtual environment.
            write_script(self.bin / name, f'exec {shlex.quote(settings.python)} "$@"')

    def claim(self, namespace: str, name: str) -> Path:
        """The folder of a PersistentVolumeClaim."""
        chosen = self.settings.volumes.get(name)
        return Path(chosen) if chosen else self._claims / namespace / name

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Starts a task that only the end of the agent waits for."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._note_end)
        return task

    def _note_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (fault := task.exception()):
            # An error in one pod must not affect the others.
            log.error("a bug in the agent", exc_info=fault)

    async def finish(self, seconds: float) -> None:
        """Waits for all tasks for so many seconds, then cancels the rest."""
        end = time.monotonic() + seconds
        while self._tasks and (left := end - time.monotonic()) > 0:
            await asyncio.wait(self._tasks, timeout=left)
        for task in self._tasks:
            task.cancel()
        while self._tasks:
            await asyncio.wait(self._tasks)

    def tell(self, pod: Object, kind: str, reason: str, message: str) -> None:
        """Creates an Event on a pod. `kind` is Normal or Warning."""
        self.spawn(self._post_event(pod["metadata"], kind, reason, message))

    def tell_of_images(self, pod: Object) -> None:
        if not self._told:
            self._told = True
            self.tell(pod, "Warning", "ImagesAreNotRun", NO_IMAGES)

    async def _post_event(self, metadata: Object, kind: str, reason: str, message: str) -> None:
        namespace, name, uid = metadata["namespace"], metadata["name"], metadata["uid"]
        event = {
            "metadata": {"name": f"{name[:200]}.{secrets.token_hex(8)}"},
            "involvedObject": {"kind": "Pod", "namespace": namespace, "name": name, "uid": uid},
            "type": kind,
            "reason": reason,
            "message": message[:1000],
            "source": {"component": "kftrain-agent", "host": self.settings.name},
            "firstTimestamp": now_text(),
            "lastTimestamp": now_text(),
            "count": 1,
        }
        try:
            await self.api.create(core(namespace, "events"), event)
        except ApiFailure as error:
            log.warning("event %s of pod %s is lost: %s", reason, name, error)


def write_script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
