"""A statsd server that only listens."""

from __future__ import annotations

import socket
from collections import Counter

_PREFIX = "airflow.kftrain."


class Receiver:
    """Keeps our metrics; those of Airflow itself are dropped."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.setblocking(False)
        self._seen: list[tuple[str, str]] = []

    @property
    def options(self) -> dict[str, str]:
        """For Airflow's section [metrics]."""
        port = self._socket.getsockname()[1]
        return {"STATSD_ON": "True", "STATSD_HOST": "127.0.0.1", "STATSD_PORT": str(port)}

    def read(self) -> list[tuple[str, str]]:
        """All names and values so far. The kernel keeps only some of what is not read."""
        while True:
            try:
                name, _, value = self._socket.recv(4096).decode().partition(":")
            except BlockingIOError:
                return self._seen
            if name.startswith(_PREFIX):
                self._seen.append((name.removeprefix(_PREFIX), value))

    def values(self, name: str) -> list[str]:
        return [value for each, value in self.read() if each == name]

    def counts(self, name: str) -> Counter[str]:
        """By the rest of the name."""
        counted: Counter[str] = Counter()
        for each, value in self.read():
            if each.startswith(f"{name}."):
                assert value == "1|c"
                counted[each.removeprefix(f"{name}.")] += 1
        return counted

    def close(self) -> None:
        self._socket.close()
