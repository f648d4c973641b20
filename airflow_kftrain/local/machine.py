"""What all pods of an agent share: settings, the API, ports, events, the state folder."""

from __future__ import annotations

import asyncio
import base64
import logging
import secrets
import shlex
import sys
from collections.abc import Coroutine, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from airflow_kftrain.local.addresses import Ports
from airflow_kftrain.local.api_client import ApiClient, ApiError, ApiUnreachable, core
from airflow_kftrain.local.environment import ConfigError, Source
from airflow_kftrain.local.pod_status import now_text
from airflow_kftrain.local.processes import PACKAGE_ROOT, Sessions

log = logging.getLogger(__name__)

Object = dict[str, Any]

COMPONENT = "kftrain-agent"
_NO_IMAGES = (
    "images are not run: the commands of pods run on this machine, as the user of the agent, and "
    "find this machine's programs and files"
)


class Settings(NamedTuple):
    """What an agent is told."""

    name: str = "local"
    cpu: str = "8"
    memory: str = "32Gi"
    gpus: int = 0
    python: str = sys.executable
    """What `python` and `python3` mean in a command."""
    port: int = 0
    """Of the log server; 0 takes any free one."""
    labels: dict[str, str] = {}
    shortest_backoff: float = 10.0
    longest_backoff: float = 300.0
    last_grace: float = 10.0
    """At most so many seconds remain to a pod when the agent ends."""


class Machine:
    def __init__(self, api: ApiClient, settings: Settings, folder: Path) -> None:
        self.api = api
        self.settings = settings
        self.folder = folder
        self.work_folder = str(Path.cwd())
        self.sessions = Sessions(folder)
        self.ports = Ports()
        self._errands: set[asyncio.Task[None]] = set()
        self._told = False
        self.bin = folder / "bin"
        self.bin.mkdir(exist_ok=True)
        for name in ("python", "python3"):
            write_script(self.bin / name, f'exec {shlex.quote(settings.python)} "$@"')

    def errand(self, work: Coroutine[Any, Any, None]) -> None:
        """Something that nobody waits for, apart from the end of the agent."""
        task = asyncio.create_task(work)
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)

    async def finish_errands(self, seconds: float) -> None:
        if self._errands:
            _, left = await asyncio.wait(self._errands, timeout=seconds)
            for task in left:
                task.cancel()

    def tell(self, pod: Object, kind: str, reason: str, message: str) -> None:
        """An Event on a pod; kind is Normal or Warning."""
        self.errand(self._post_event(pod, kind, reason, message))

    def tell_of_images(self, pod: Object) -> None:
        if not self._told:
            self._told = True
            self.tell(pod, "Warning", "ImagesAreNotRun", _NO_IMAGES)

    def warn_of_images(self) -> None:
        log.warning("%s", _NO_IMAGES.upper())

    async def _post_event(self, pod: Object, kind: str, reason: str, message: str) -> None:
        metadata, now = pod["metadata"], now_text()
        reference = {
            "apiVersion": "v1",
            "kind": "Pod",
            **{key: metadata[key] for key in ("namespace", "name", "uid")},
        }
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{metadata['name'][:200]}.{secrets.token_hex(8)}",
                "namespace": metadata["namespace"],
            },
            "involvedObject": reference,
            "type": kind,
            "reason": reason,
            "message": message[:1000],
            "source": {"component": COMPONENT, "host": self.settings.name},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            await self.api.create(core(metadata["namespace"], "events"), event)
        except (ApiError, ApiUnreachable) as error:
            log.warning("event %s of pod %s is lost: %s", reason, metadata["name"], error)

    async def fetch(
        self, namespace: str, sources: Iterable[Source]
    ) -> dict[Source, dict[str, bytes] | None]:
        """The content of config maps and secrets; raises ConfigError."""
        found: dict[Source, dict[str, bytes] | None] = {}
        for plural, name in sorted(sources):
            try:
                given = await self.api.get(core(namespace, plural, name))
            except ApiUnreachable as error:
                raise ConfigError(str(error)) from error
            except ApiError as error:
                if error.code != 404:
                    raise ConfigError(str(error)) from error
                found[plural, name] = None
                continue
            encoded = given.get("data" if plural == "secrets" else "binaryData") or {}
            plain = (given.get("data") or {}) if plural == "configmaps" else {}
            found[plural, name] = {
                **{key: value.encode() for key, value in plain.items()},
                **{key: base64.b64decode(value) for key, value in encoded.items()},
            }
        return found

    def write_remote_shell(self, path: Path, namespace: str) -> None:
        """The program by which MPI starts ranks in other pods of the namespace."""
        words = [sys.executable, "-m", "airflow_kftrain.local.remote_shell"]
        words += [str(self.names), namespace]
        write_script(path, f'PYTHONPATH={shlex.quote(PACKAGE_ROOT)} exec {shlex.join(words)} "$@"')

    @property
    def names(self) -> Path:
        """Where pods are found by name: links to their folders."""
        return self.folder / "names"


def write_script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
