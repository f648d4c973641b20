"""Logs of containers: written with times, and served to the API server as a kubelet does.

A line of a file is `<time> F <text>`, or `P` instead of `F` if the text does not end with a
newline.

The server listens on loopback only, and has only one path. The agent does not know which
certificate identifies the API server, so it cannot authenticate its callers. Any user of this
machine can read the logs of its pods, as with other development servers. Nothing can be listed,
written or started through it.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import mmap
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import BinaryIO, NamedTuple

from aiohttp import web

from kftrain_local.errors import LocalError
from kftrain_local.times import time_of

_LONGEST_LINE = 16 * 1024
_BLOCK = 64 * 1024
_PREFIX = len("2026-01-01T00:00:00.000000000Z F ")
_LOOK_EVERY = 0.1


class CannotRun(LocalError):
    """The agent cannot start."""


class NoLog(LocalError):
    """There is no such log; in the words of a kubelet."""


def timestamp(nanoseconds: int) -> str:
    """RFC 3339 with nine digits, so that times can be compared as text."""
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    moment = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"


class ContainerLog(asyncio.Protocol):
    """The output of one run of a container, read from a pipe and written to a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.finished = asyncio.Event()
        self._rest = b""
        path.touch(0o600)

    def data_received(self, data: bytes) -> None:
        """Lines are stored when they are complete."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        entries = [(b"F", line) for line in lines]
        while len(self._rest) >= _LONGEST_LINE:
            entries.append((b"P", self._rest[:_LONGEST_LINE]))
            self._rest = self._rest[_LONGEST_LINE:]
        self._store(entries)

    def connection_lost(self, error: Exception | None) -> None:
        self.finished.set()
        with contextlib.suppress(FileNotFoundError):  # it was removed together with its pod
            self._store([(b"P", self._rest)] if self._rest else [])

    def _store(self, entries: list[tuple[bytes, bytes]]) -> None:
        now = timestamp(time.time_ns()).encode()
        with open(self.path, "ab") as file:
            file.writelines(b"%s %s %s\n" % (now, ending, line) for ending, line in entries)

    def end(self, lines: int, size: int) -> str:
        """The end of the log as a termination message, limited in lines and bytes."""
        with open_tail(self.path, lines) as file:
            text = b"".join(_shown(line, LogOptions()) for line in file)
        return text[-size:].decode("utf-8", "replace")


class LogOptions(NamedTuple):
    """Which part of a log is requested, with the names of the Kubernetes API."""

    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail_lines: int | None = None
    limit_bytes: int | None = None
    since: str = ""
    """Lines from this time on, as `timestamp` writes it."""


def read_options(query: Mapping[str, str], now: float) -> LogOptions:
    """Reads the query of a request. Raises ValueError."""

    def yes(name: str) -> bool:
        return query.get(name, "false").lower() not in ("false", "0")

    def number(name: str, least: int) -> int | None:
        if name in query and int(query[name]) < least:
            raise ValueError(f"{name}: Invalid value: {query[name]}: must be at least {least}")
        return int(query[name]) if name in query else None

    if {"sinceTime", "sinceSeconds"} <= query.keys():
        raise ValueError("sinceTime: Forbidden: it cannot be given beside `sinceSeconds`")
    since = time_of(query["sinceTime"]).timestamp() if "sinceTime" in query else None
    if seconds := number("sinceSeconds", 1):
        since = now - seconds
    return LogOptions(
        follow=yes("follow"),
        previous=yes("previous"),
        timestamps=yes("timestamps"),
        tail_lines=number("tailLines", 0),
        limit_bytes=number("limitBytes", 1),
        since="" if since is None else timestamp(max(0, int(since)) * 1_000_000_000),
    )


async def read_log(log: ContainerLog, options: LogOptions) -> AsyncIterator[bytes]:
    """The requested part of a log, in blocks. If it is followed, it ends when the log does."""
    left = options.limit_bytes
    with open_tail(log.path, options.tail_lines) as file:
        while left != 0:
            # Checked before reading, so that what is written after the last read is not missed.
            last = log.finished.is_set() or not options.follow
            while left != 0 and (lines := file.readlines(_BLOCK)):
                block = b"".join(_shown(line, options) for line in lines)[:left]
                left = None if left is None else left - len(block)
                yield block
            if last:
                return
            await asyncio.sleep(_LOOK_EVERY)


def _shown(line: bytes, options: LogOptions) -> bytes:
    if line[: _PREFIX - 3].decode("ascii", "replace") < options.since:
        return b""
    text = line[_PREFIX:] if line[_PREFIX - 2 : _PREFIX - 1] == b"F" else line[_PREFIX:-1]
    return line[: _PREFIX - 2] + text if options.timestamps else text


def open_tail(path: Path, lines: int | None) -> BinaryIO:
    """A log, opened where its last lines begin. None: the whole log."""
    file: BinaryIO = open(path, "rb")  # noqa: SIM115  # whoever asked closes it
    place = path.stat().st_size
    if lines is None or place == 0:
        return file
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        for _ in range(lines + 1):  # the newline before the first of them
            place = content.rfind(b"\n", 0, place)
            if place < 0:
                break
    file.seek(place + 1)
    return file


# ----- the server

FindLog = Callable[[str, str, str, bool], ContainerLog]
"""(namespace, pod, container, previous) -> its log. Raises NoLog."""


async def serve_logs(find: FindLog, folder: Path, port: int) -> web.AppRunner:
    """Listens until `cleanup`; port 0 means any free one. Raises CannotRun."""

    async def serve(request: web.Request) -> web.StreamResponse:
        where = request.match_info
        try:
            options = read_options(request.query, time.time())
            log = find(where["namespace"], where["pod"], where["container"], options.previous)
        except ValueError:
            return web.Response(status=422, text='{"message": "Invalid request."}')
        except NoLog as missing:
            return web.Response(status=400, text=str(missing))
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):  # the reader has gone
            async for block in read_log(log, options):
                await response.write(block)
            await response.write_eof()
        return response

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*make_certificate(folder))
    app = web.Application()
    app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", serve)
    # Readers that follow a log do not delay the end of the agent.
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context).start()
    except (OSError, OverflowError) as error:
        await runner.cleanup()
        raise CannotRun(f"port {port} on 127.0.0.1 cannot be used: {error}") from error
    return runner


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """A self-signed certificate and its key. Raises CannotRun."""
    certificate, key = folder / "tls.crt", folder / "tls.key"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3650"]
    words += ["-subj", "/CN=127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    try:
        subprocess.run(words, capture_output=True, text=True, check=True)
    except FileNotFoundError as error:
        raise CannotRun("logs are served over TLS: install the program openssl") from error
    except subprocess.CalledProcessError as error:
        raise CannotRun(
            f"openssl cannot create a certificate: {error.stderr.strip()[-300:]}"
        ) from error
    key.chmod(0o600)
    return certificate, key
