"""An API server that contains only jobs, over TLS, in a process of its own. It is so lean that it
never affects the measurement.

It answers what the triggers ask, ours and the peer's, with objects as large as real ones, ready as
bytes; and it counts. What is done to it (jobs change, end; watches expire, break; it goes away)
comes as lines of JSON on its stdin, one answer each on its stdout. `python -m bench.standin 100`
serves a hundred jobs; another number is how much each of their templates carries.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from bench.objects import BATCH, ITEM, Job, pods_of
from tests.control_plane.certificates import LOOPBACK, make_certificates, write_certificates

BOOKMARK_SECONDS = 60.0
_LINES = 200
_LOG_OF_A_POD = b"step 1000, loss 0.1\n" * 50
_REMEMBERED = 50_000
"""Events from which a watch may continue."""

Query = dict[str, str]


class Watch:
    """An open watch: chunks, each with the events in their order."""

    def __init__(self, standin: Standin, connection: Connection, plural: str, query: Query) -> None:
        self.plural = plural
        self._standin = standin
        self._connection = connection
        self._timers: list[asyncio.TimerHandle] = []
        self._wait(float(query.get("timeoutSeconds", "1800")), self.end)
        self._wait(standin.bookmark_seconds, self._bookmark)

    def send(self, line: bytes) -> None:
        self._connection.write(b"%x\r\n%s\r\n" % (len(line), line))

    def end(self) -> None:
        """Ends it as a server does: the connection stays open."""
        self.forget()
        self._connection.write(b"0\r\n\r\n")

    def cut(self) -> None:
        self._connection.abort()

    def forget(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._connection.watch = None
        self._standin.watches.discard(self)

    def _bookmark(self) -> None:
        version = {"metadata": {"resourceVersion": str(self._standin.version)}}
        self.send(_event("BOOKMARK", json.dumps(version).encode()))
        self._timers.pop()
        self._wait(self._standin.bookmark_seconds, self._bookmark)

    def _wait(self, seconds: float, then: Callable[[], None]) -> None:
        self._timers.append(asyncio.get_running_loop().call_later(seconds, then))


class Connection(asyncio.Protocol):
    def __init__(self, standin: Standin) -> None:
        self.watch: Watch | None = None
        self._standin = standin
        self._asked = b""
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._standin.connections.add(self)
        self._standin.counts["connections"] += 1
        reused = transport.get_extra_info("ssl_object").session_reused
        self._standin.counts["handshakes"] += not reused

    def connection_lost(self, exc: Exception | None) -> None:
        self._standin.connections.discard(self)
        if self.watch is not None:
            self.watch.forget()

    def data_received(self, data: bytes) -> None:
        """No client sends a body."""
        *heads, self._asked = (self._asked + data).split(b"\r\n\r\n")
        for head in heads:
            path, _, query = head.split(b" ", 2)[1].decode().partition("?")
            self._standin.answer(self, path, dict(parse_qsl(query)))

    def write(self, data: bytes) -> None:
        self._standin.counts["bytes answered"] += len(data)
        if not self._transport.is_closing():
            self._transport.write(data)

    def reply(self, body: bytes, code: int = 200) -> None:
        head = f"HTTP/1.1 {code} \r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        self.write(head.encode() + b"\r\n\r\n" + body)

    def follow(self, plural: str, query: Query) -> Watch:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked"
        self.write(head + b"\r\n\r\n")
        self.watch = Watch(self._standin, self, plural, query)
        return self.watch

    def abort(self) -> None:
        self._transport.abort()


class Standin:
    def __init__(self, jobs: int, carried: int) -> None:
        self.bookmark_seconds = BOOKMARK_SECONDS
        self.version = jobs
        self.jobs = {job.name: job for job in (Job(each, carried) for each in range(jobs))}
        self.watches: set[Watch] = set()
        self.connections: set[Connection] = set()
        self.counts: Counter[str] = Counter()
        self.asked: set[str] = set()
        """The jobs that were read by name since the server was away."""
        self._oldest = 0
        self._events: deque[tuple[int, bytes]] = deque(maxlen=_REMEMBERED)
        self._order = list(self.jobs.values())
        self._changing: asyncio.Task[None] | None = None
        self._log_seconds = 1
        self._log: tuple[int, list[bytes]] = (0, [])
        """When it was written, and its lines."""

    # ----- requests

    def answer(self, connection: Connection, path: str, query: Query) -> None:
        """By the end of the path: /apis/GROUP/VERSION/namespaces/default/PLURAL[/NAME[/...]]"""
        plural, _, rest = path.partition("/namespaces/default/")[2].partition("/")
        name, _, part = rest.partition("/")
        self.counts["requests"] += 1
        if plural == "pods" and name:
            self._count("log")
            shows = "timestamps" in query
            connection.reply(self._progress(query) if shows else _LOG_OF_A_POD)
        elif name in self.jobs:
            self._count("get")
            self.asked.add(name)
            job = self.jobs[name]
            connection.reply(job.batch if plural == BATCH else job.body)
        elif "watch" in query:
            self._count("watch")
            self._follow(connection, plural, query)
        elif plural == "pods" and "fieldSelector" not in query:
            self._count("pods of a job")
            found = self.jobs[query["labelSelector"].rpartition("=")[2]]
            connection.reply(pods_of(found, self.version))
        elif plural in (ITEM, "pods") and not name:
            self._count(f"list {plural}")
            page = self._page(plural, query)
            self.counts[f"bytes of {plural}"] += len(page)
            connection.reply(page)
        else:
            connection.reply(_status(404, "NotFound"), 404)

    def _progress(self, query: Query) -> bytes:
        """The end of a log that grows all the time."""
        every = self._log_seconds
        now = int(time.time()) // every * every
        if self._log[0] != now:
            seconds = range(now - (_LINES - 1) * every, now + 1, every)
            self._log = now, [_line_of(second) for second in seconds]
        lines = self._log[1]
        if since := query.get("sinceTime"):
            age = now - datetime.fromisoformat(since.replace("Z", "+00:00")).timestamp()
            lines = lines[-1 - int(age // every) :]
        return b"".join(lines)

    def _count(self, what: str) -> None:
        self.counts[what] += 1

    def _page(self, plural: str, query: Query) -> bytes:
        """No pod is in trouble. The watch reports changes between two pages."""
        jobs = self._order if plural == ITEM else []
        version, _, begin = query.get("continue", f"{self.version}:0").partition(":")
        end = int(begin) + int(query.get("limit", len(jobs)))
        metadata = {"resourceVersion": version}
        if end < len(jobs):
            metadata["continue"] = f"{version}:{end}"
        items = b",".join(job.body for job in jobs[int(begin) : end])
        said = json.dumps({"kind": "List", "apiVersion": "v1", "metadata": metadata}).encode()
        return said[:-1] + b', "items": [' + items + b"]}"

    def _follow(self, connection: Connection, plural: str, query: Query) -> None:
        watch = connection.follow(plural, query)
        version = int(query["resourceVersion"])
        if version < self._oldest:
            watch.send(_event("ERROR", _status(410, "Expired")))
            watch.end()
            return
        self.watches.add(watch)
        for _, line in self._missed(plural, version):
            watch.send(line)

    def _missed(self, plural: str, version: int) -> Iterator[tuple[int, bytes]]:
        return (each for each in self._events if plural == ITEM and each[0] > version)

    # ----- commands

    def write(self, job: Job, phase: str) -> None:
        self.version += 1
        job.write(phase, self.version)
        line = _event("MODIFIED", job.body)
        self._events.append((self.version, line))
        for watch in self.watches:
            if watch.plural == ITEM:
                watch.send(line)

    def running(self) -> list[Job]:
        return [job for job in self._order if job.phase != "Succeeded"]

    async def end(self, jobs: int, rate: float) -> dict[str, float]:
        """When each end was written, by the clock that all processes share."""
        written = {}
        async for job in self._in_time(self.running()[:jobs], rate):
            written[job.name] = time.time()
            self.write(job, "Succeeded")
        return written

    async def change(self, rate: float) -> None:
        """From now on so many per second, one after the other."""
        if self._changing is not None:
            self._changing.cancel()
        if rate:
            self._changing = asyncio.create_task(self._change_on(rate))

    async def _change_on(self, rate: float) -> None:
        while True:
            async for job in self._in_time(self.running(), rate):
                self.write(job, "Running" if job.phase == "Degraded" else "Degraded")
            await asyncio.sleep(1 / rate)

    async def _in_time(self, jobs: list[Job], rate: float) -> Any:
        began = time.monotonic()
        for number, job in enumerate(jobs):
            await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
            yield job

    async def renew(self) -> None:
        """All jobs run again."""
        for job in self._order:
            self.write(job, "Running")

    async def expire(self) -> None:
        """410 for all watches, and for older versions."""
        self.version += 1
        self._oldest = self.version
        for watch in list(self.watches):
            watch.send(_event("ERROR", _status(410, "Expired")))
            watch.end()

    async def cut(self) -> None:
        for watch in list(self.watches):
            watch.cut()

    async def hurry(self, times: float) -> None:
        """Speeds up the periodic events of watches that are opened from now on."""
        self.bookmark_seconds = BOOKMARK_SECONDS / times

    async def write_logs(self, every: int) -> None:
        """The seconds from one line to the next."""
        self._log_seconds = every

    async def read(self) -> dict[str, float]:
        now = {
            "open": len(self.connections),
            "watches": len(self.watches),
            "asked": len(self.asked),
        }
        return {**self.counts, **now, "cpu": time.process_time()}


class Address:
    """Where it listens: always on one port, even after it was away."""

    def __init__(self, standin: Standin, folder: Path) -> None:
        self._standin = standin
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._tls.load_cert_chain(folder / "tls.crt", folder / "tls.key")
        self._server: asyncio.Server | None = None
        self.port = 0

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Connection(self._standin), LOOPBACK, self.port, ssl=self._tls, backlog=4096
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def away(self, seconds: float) -> None:
        """Like the restart of an API server."""
        assert self._server is not None
        self._server.close()
        for connection in list(self._standin.connections):
            connection.abort()
        await asyncio.sleep(seconds)
        self._standin.asked.clear()
        await self.open()


def _line_of(second: int) -> bytes:
    step = second % 100_000
    metrics = {"loss": 1 / (1 + step), "accuracy": step / 100_000, "lr": 0.001}
    said = {"kftrain": {"step": step, "total": 100_000, "metrics": metrics}}
    at = datetime.fromtimestamp(second, timezone.utc)
    return f"{at:%Y-%m-%dT%H:%M:%S}.123456789Z {json.dumps(said)}\n".encode()


def _event(kind: str, body: bytes) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (kind.encode(), body)


def _status(code: int, reason: str) -> bytes:
    said = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}
    return json.dumps({**said, "reason": reason, "message": reason}).encode()


def _write_kubeconfig(folder: Path, server: str, ca: bytes) -> Path:
    cluster = {"server": server, "certificate-authority-data": base64.b64encode(ca).decode()}
    said = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "bench",
        "clusters": [{"name": "bench", "cluster": cluster}],
        "users": [{"name": "bench", "user": {"token": "t" * 900}}],
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(said), encoding="utf-8")
    return path


async def _lines() -> Any:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        yield json.loads(line)


async def serve(jobs: int, carried: int, folder: Path) -> None:
    standin = Standin(jobs, carried)
    files = make_certificates()
    write_certificates(files, folder)
    address = Address(standin, folder)
    await address.open()
    server = f"https://{LOOPBACK}:{address.port}"
    print(json.dumps(str(_write_kubeconfig(folder, server, files["ca.crt"]))), flush=True)
    commands: dict[str, Callable[..., Coroutine[Any, Any, Any]]] = {
        each.__name__: each
        for each in (
            *(standin.read, standin.end, standin.change, standin.renew),
            *(standin.expire, standin.cut, standin.hurry, standin.write_logs, address.away),
        )
    }
    async for said in _lines():
        print(json.dumps(await commands[said.pop("do")](**said)), flush=True)


def main() -> None:
    jobs, carried = (int(word) for word in [*sys.argv[1:], "0"][:2])
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(serve(jobs, carried, Path(folder)))


if __name__ == "__main__":
    main()
