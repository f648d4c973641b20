from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path

import pytest

from kftrain_local.agent.logs import (
    CannotRun,
    ContainerLog,
    LogOptions,
    open_tail,
    read_log,
    read_options,
    serve_logs,
    timestamp,
)


def write(path: Path, *chunks: bytes) -> ContainerLog:
    log = ContainerLog(path)
    for chunk in chunks:
        log.data_received(chunk)
    log.connection_lost(None)
    return log


def read(log: ContainerLog, **options: object) -> bytes:
    async def work() -> bytes:
        wanted = LogOptions(**options)  # type: ignore[arg-type]
        return b"".join([block async for block in read_log(log, wanted)])

    return asyncio.run(asyncio.wait_for(work(), 60))


@pytest.mark.parametrize(
    "chunks",
    [
        (b"one\ntwo\n",),
        (b"on", b"e\nt", b"wo\n"),
        (b"no newline",),
        (b"x" * 40_000 + b"\nend",),
        (b"\xff\x00\r\n\n\n",),
        (),
    ],
)
def test_what_goes_in_comes_out(tmp_path: Path, chunks: tuple[bytes, ...]) -> None:
    assert read(write(tmp_path / "log", *chunks)) == b"".join(chunks)


@pytest.mark.parametrize(
    ("lines", "expected"), [(0, b""), (1, b"c\n"), (2, b"b\nc\n"), (99, b"a\nb\nc\n")]
)
def test_tail(tmp_path: Path, lines: int, expected: bytes) -> None:
    log = write(tmp_path / "log", b"a\nb\nc\n")
    assert read(log, tail_lines=lines) == expected


def test_the_tail_of_a_long_log_is_found_from_its_end(tmp_path: Path) -> None:
    log = write(tmp_path / "log", b"".join(b"%d\n" % number for number in range(20_000)))
    assert read(log, tail_lines=3) == b"19997\n19998\n19999\n"
    assert read(log, tail_lines=15_000).startswith(b"5000\n")
    for lines in (20_000, 10**12):
        with open_tail(log.path, lines) as file:
            assert file.tell() == 0


def test_bytes_are_limited(tmp_path: Path) -> None:
    log = write(tmp_path / "log", b"one\ntwo\n")
    assert read(log, limit_bytes=5) == b"one\nt"


def test_times_are_shown_and_compared(tmp_path: Path) -> None:
    log = write(tmp_path / "log", b"one\n")
    shown = read(log, timestamps=True)
    assert re.fullmatch(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z one\n", shown)
    assert read(log, since=timestamp(0)) == b"one\n"
    assert read(log, since="2999") == b""


def test_a_follower_sees_what_is_written_until_the_end(tmp_path: Path) -> None:
    async def work() -> list[bytes]:
        log = ContainerLog(tmp_path / "log")
        log.data_received(b"a\nb\n")
        seen = []
        async for block in read_log(log, LogOptions(follow=True, tail_lines=1)):
            seen.append(block)
            if len(seen) == 1:
                log.data_received(b"c")
                log.data_received(b"d\ne")
                log.connection_lost(None)
        return seen

    assert asyncio.run(asyncio.wait_for(work(), 60)) == [b"b\n", b"cd\ne"]


def test_a_follower_keeps_to_its_limit_and_does_not_wait_any_more(tmp_path: Path) -> None:
    async def work() -> list[bytes]:
        log = ContainerLog(tmp_path / "log")
        log.data_received(b"abc\n")
        options = LogOptions(follow=True, limit_bytes=2)
        return [block async for block in read_log(log, options)]

    assert asyncio.run(asyncio.wait_for(work(), 60)) == [b"ab"]


def test_a_pipe_is_copied_until_nobody_holds_it_open(tmp_path: Path) -> None:
    async def work() -> bytes:
        log = ContainerLog(tmp_path / "log")
        read_end, write_end = os.pipe()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: log, os.fdopen(read_end, "rb", 0))
        os.write(write_end, b"one\ntwo")
        os.close(write_end)
        await asyncio.wait_for(log.finished.wait(), 60)
        return b"".join([block async for block in read_log(log, LogOptions())])

    assert asyncio.run(work()) == b"one\ntwo"


def test_options_of_a_request() -> None:
    query = {"follow": "true", "tailLines": "3", "limitBytes": "9", "sinceSeconds": "10"}
    options = read_options({**query, "timestamps": "1", "previous": "false"}, 100.0)
    assert options == LogOptions(True, False, True, 3, 9, timestamp(90 * 10**9))
    moment = read_options({"sinceTime": "1970-01-01T00:01:30Z"}, 0)
    assert moment.since == timestamp(90 * 10**9)
    for query in ({"sinceSeconds": str(2**63 - 1)}, {"sinceTime": "0001-01-01T00:00:00Z"}):
        assert read_options(query, 100.0).since == timestamp(0)


@pytest.mark.parametrize(
    "query",
    [{"tailLines": "-1"}, {"tailLines": "x"}, {"sinceTime": "soon"}, {"sinceSeconds": "0"}],
)
def test_nonsense_is_refused(query: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read_options(query, 0)


def test_the_end_of_a_log_is_a_termination_message(tmp_path: Path) -> None:
    assert write(tmp_path / "none").end(2, 9) == ""
    log = write(tmp_path / "log", b"first\nsecond\nthird\n")
    assert log.end(2, 99) == "second\nthird\n"
    assert log.end(2, 6) == "third\n"


@pytest.mark.parametrize("port", [-1, 65536])
def test_what_is_no_port_is_named(tmp_path: Path, port: int) -> None:
    def find(namespace: str, name: str, container: str, previous: bool) -> ContainerLog:
        raise AssertionError

    with pytest.raises(CannotRun, match=f"port {port} on 127.0.0.1 cannot be used"):
        asyncio.run(serve_logs(find, tmp_path, port))
