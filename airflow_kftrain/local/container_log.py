"""The log of one run of a container: written with times, read as `kubectl logs` asks for it.

A line of the file is `<time> F <text>`, or `P` where the text does not end with a newline.
"""

from __future__ import annotations

import asyncio
import datetime
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, NamedTuple

_LONGEST_LINE = 16 * 1024
_BLOCK = 64 * 1024
_PREFIX = len("2026-01-01T00:00:00.000000000Z F ")


def timestamp(nanoseconds: int) -> str:
    """RFC 3339 with nine digits, so that times compare as text."""
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    moment = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"


class ContainerLog:
    """The file, and a bell for those who follow it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.finished = False
        self._rest = b""
        self._bell = asyncio.Event()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: BinaryIO = open(path, "wb")  # noqa: SIM115  # closed by finish()

    def write(self, chunk: bytes) -> None:
        """Take what came from the process; lines are stored when they are complete."""
        now = timestamp(time.time_ns()).encode()
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            self._store(now, line, b"F")
        while len(self._rest) >= _LONGEST_LINE:
            self._store(now, self._rest[:_LONGEST_LINE], b"P")
            self._rest = self._rest[_LONGEST_LINE:]
        self._file.flush()
        self._ring()

    def finish(self) -> None:
        if self._rest:
            self._store(timestamp(time.time_ns()).encode(), self._rest, b"P")
            self._rest = b""
        self._file.close()
        self.finished = True
        self._ring()

    def _store(self, now: bytes, line: bytes, ending: bytes) -> None:
        self._file.write(b"%s %s %s\n" % (now, ending, line))

    def _ring(self) -> None:
        self._bell.set()
        self._bell = asyncio.Event()

    async def more(self) -> None:
        """Wait for the next write, or the end."""
        if not self.finished:
            await self._bell.wait()


class LogOptions(NamedTuple):
    """What of a log is wanted; the words of the Kubernetes API."""

    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail_lines: int | None = None
    limit_bytes: int | None = None
    since: str = ""
    """Lines from this time on, as `timestamp` writes it."""


def read_options(query: Mapping[str, str], now: float) -> LogOptions:
    """From the query of a request; raises ValueError."""
    since = ""
    if "sinceTime" in query:
        moment = datetime.datetime.fromisoformat(query["sinceTime"].replace("Z", "+00:00"))
        since = timestamp(int(moment.timestamp()) * 1_000_000_000)
    elif "sinceSeconds" in query:
        since = timestamp(int((now - _positive(query["sinceSeconds"], 1)) * 1_000_000_000))
    return LogOptions(
        follow=_true(query.get("follow")),
        previous=_true(query.get("previous")),
        timestamps=_true(query.get("timestamps")),
        tail_lines=_positive(query["tailLines"], 0) if "tailLines" in query else None,
        limit_bytes=_positive(query["limitBytes"], 1) if "limitBytes" in query else None,
        since=since,
    )


def _true(value: str | None) -> bool:
    return value is not None and value.lower() not in ("false", "0")


def _positive(text: str, least: int) -> int:
    number = int(text)
    if number < least:
        raise ValueError(f"{number} is less than {least}")
    return number


class LogReader:
    """Reads what is there of a log file, again and again, and keeps its place."""

    def __init__(self, path: Path, options: LogOptions) -> None:
        self._path = path
        self._options = options
        self._place = 0 if options.tail_lines is None else tail_start(path, options.tail_lines)
        self._left = options.limit_bytes

    @property
    def full(self) -> bool:
        return self._left is not None and self._left <= 0

    def read(self) -> Iterator[bytes]:
        """What has been added since the last call, in blocks of whole lines."""
        with open(self._path, "rb") as file:
            file.seek(self._place)
            while not self.full and (lines := file.readlines(_BLOCK)):
                if not lines[-1].endswith(b"\n"):
                    lines.pop()  # still being written
                self._place += sum(map(len, lines))
                if not lines:
                    return
                yield self._cut(b"".join(map(self._shown, lines)))

    def _shown(self, line: bytes) -> bytes:
        if line[: _PREFIX - 3].decode("ascii", "replace") < self._options.since:
            return b""
        text = line[_PREFIX:] if line[_PREFIX - 2 : _PREFIX - 1] == b"F" else line[_PREFIX:-1]
        return line[: _PREFIX - 2] + text if self._options.timestamps else text

    def _cut(self, block: bytes) -> bytes:
        if self._left is not None:
            block = block[: self._left]
            self._left -= len(block)
        return block


def tail_start(path: Path, lines: int) -> int:
    """Where the last lines of a file begin, found from its end."""
    with open(path, "rb") as file:
        place = file.seek(0, os.SEEK_END)
        wanted = lines + 1  # the newline before the first of them
        while place > 0:
            size = min(_BLOCK, place)
            file.seek(place - size)
            block = file.read(size)
            found = block.count(b"\n")
            if found >= wanted:
                for _ in range(wanted):
                    cut = block.rfind(b"\n")
                    block = block[:cut]
                return place - size + cut + 1
            wanted -= found
            place -= size
    return 0


def last_words(path: Path, lines: int, size: int) -> str:
    """The end of a log as a termination message: so many lines, and no more bytes than that."""
    if not path.exists():
        return ""
    text = b"".join(LogReader(path, LogOptions(tail_lines=lines)).read())
    return text[-size:].decode("utf-8", "replace")
