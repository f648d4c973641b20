"""What the containers of a pod share."""

from __future__ import annotations

import asyncio
from pathlib import Path

from kftrain_local.agent.addresses import Peers, scope_of
from kftrain_local.agent.machine import Machine
from kftrain_local.agent.remote_shell import folder_of
from kftrain_local.api_client import Object


class Sandbox:
    def __init__(self, machine: Machine, found: Object) -> None:
        metadata = found["metadata"]
        self.machine = machine
        self.object = found
        self.namespace: str = metadata["namespace"]
        self.name: str = metadata["name"]
        self.uid: str = metadata["uid"]
        self.folder = folder_of(machine.pods, self.namespace, self.name, self.uid)
        # Short, since programs also create sockets in it, whose paths have at most 107 bytes.
        self.scratch = machine.scratch / self.uid[:8]
        self.scope = scope_of(found)
        self.peers = Peers(found, lambda host, port: machine.ports.port(self.scope, host, port))
        self.volumes: dict[str, Path] = {}
        self.cluster_env: dict[str, dict[str, str]] = {}
        self.changed = asyncio.Event()

    def tell(self, kind: str, reason: str, message: str) -> None:
        self.machine.tell(self.object, kind, reason, message)
