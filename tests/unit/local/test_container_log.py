from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from airflow_kftrain.local.container_log import (
    ContainerLog,
    LogOptions,
    LogReader,
    last_words,
    read_options,
    tail_start,
    timestamp,
)


def write(path: Path, *chunks: bytes) -> None:
    async def work() -> None:
        log = ContainerLog(path)
        for chunk in chunks:
            log.write(chunk)
        log.finish()

    asyncio.run(work())


def read(path: Path, **options: object) -> bytes:
    return b"".join(LogReader(path, LogOptions(**options)).read())  # type: ignore[arg-type]


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
    write(tmp_path / "log", *chunks)
    assert read(tmp_path / "log") == b"".join(chunks)


@pytest.mark.parametrize(
    ("lines", "expected"), [(0, b""), (1, b"c\n"), (2, b"b\nc\n"), (99, b"a\nb\nc\n")]
)
def test_tail(tmp_path: Path, lines: int, expected: bytes) -> None:
    write(tmp_path / "log", b"a\nb\nc\n")
    assert read(tmp_path / "log", tail_lines=lines) == expected


def test_the_tail_of_a_long_log_is_found_from_its_end(tmp_path: Path) -> None:
    write(tmp_path / "log", b"".join(b"%d\n" % number for number in range(20_000)))
    assert read(tmp_path / "log", tail_lines=3) == b"19997\n19998\n19999\n"
    assert read(tmp_path / "log", tail_lines=15_000).startswith(b"5000\n")
    assert tail_start(tmp_path / "log", 20_000) == 0


def test_bytes_are_limited(tmp_path: Path) -> None:
    write(tmp_path / "log", b"one\ntwo\n")
    assert read(tmp_path / "log", limit_bytes=5) == b"one\nt"


def test_times_are_shown_and_compared(tmp_path: Path) -> None:
    write(tmp_path / "log", b"one\n")
    shown = read(tmp_path / "log", timestamps=True)
    assert re.fullmatch(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z one\n", shown)
    assert read(tmp_path / "log", since=timestamp(0)) == b"one\n"
    assert read(tmp_path / "log", since="2999") == b""


def test_a_reader_goes_on_where_it_was(tmp_path: Path) -> None:
    async def work() -> list[bytes]:
        log = ContainerLog(tmp_path / "log")
        reader = LogReader(log.path, LogOptions(tail_lines=1))
        seen = []
        for chunk in (b"a\nb", b"\n", b"", b"c\n"):
            log.write(chunk)
            seen.append(b"".join(reader.read()))
        log.finish()
        await asyncio.wait_for(log.more(), 1)
        return seen

    assert asyncio.run(work()) == [b"a\n", b"b\n", b"", b"c\n"]


def test_a_follower_wakes_when_something_is_written() -> None:
    async def work(path: Path) -> None:
        log = ContainerLog(path)
        waiting = asyncio.create_task(log.more())
        await asyncio.sleep(0)
        assert not waiting.done()
        log.write(b"x")
        await asyncio.wait_for(waiting, 1)
        log.finish()

    asyncio.run(work(Path("/dev/null")))


def test_options_of_a_request() -> None:
    query = {"follow": "true", "tailLines": "3", "limitBytes": "9", "sinceSeconds": "10"}
    options = read_options({**query, "timestamps": "1", "previous": "false"}, 100.0)
    assert options == LogOptions(True, False, True, 3, 9, timestamp(90 * 10**9))
    moment = read_options({"sinceTime": "1970-01-01T00:01:30Z"}, 0)
    assert moment.since == timestamp(90 * 10**9)


@pytest.mark.parametrize(
    "query",
    [{"tailLines": "-1"}, {"tailLines": "x"}, {"sinceTime": "soon"}, {"sinceSeconds": "0"}],
)
def test_nonsense_is_refused(query: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read_options(query, 0)


def test_last_words_are_the_end_of_the_log(tmp_path: Path) -> None:
    assert last_words(tmp_path / "none", 2, 9) == ""
    write(tmp_path / "log", b"first\nsecond\nthird\n")
    assert last_words(tmp_path / "log", 2, 99) == "second\nthird\n"
    assert last_words(tmp_path / "log", 2, 6) == "third\n"
