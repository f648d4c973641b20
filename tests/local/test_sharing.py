"""One real target for several processes, as the scenarios share it; here with a fake target."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import sharing
from tests.cluster.sharing import JoinedTarget, shared
from tests.control_plane.processes import ProcessId, process_id


class Fake:
    """Instead of the real target."""

    living = 0
    started = 0

    def __init__(self, profile: str) -> None:
        self.profile = profile
        self.part = process_id(os.getpid())

    def __enter__(self) -> Fake:
        Fake.living += 1
        Fake.started += 1
        assert Fake.living == 1
        return self

    def __exit__(self, *_: object) -> None:
        Fake.living -= 1

    def description(self) -> dict[str, Any]:
        server = ("http://127.0.0.1:1", None, None)
        parts = {"a part": self.part}
        return {"kubeconfig": self.profile, "api": server, "etcd": server, "parts": parts}


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "RealTarget", Fake)
    monkeypatch.setattr(Fake, "started", 0)


def test_all_use_the_one_that_the_first_has_started(tmp_path: Path) -> None:
    together = threading.Barrier(4, timeout=30)

    def use() -> bool:
        with shared("p", tmp_path) as target:
            together.wait()
            return isinstance(target, JoinedTarget)

    with ThreadPoolExecutor(4) as pool:
        joined = [each.result() for each in [pool.submit(use) for _ in range(4)]]
    assert sorted(joined) == [False, True, True, True]
    assert (Fake.started, Fake.living) == (1, 0)


def test_it_ends_when_the_last_has_let_go_of_it(tmp_path: Path) -> None:
    first, second = shared("p", tmp_path), shared("p", tmp_path)
    first.__enter__()
    joined = second.__enter__()
    assert joined.kubeconfig == Path("p")
    ends = threading.Thread(target=first.__exit__, args=(None, None, None))
    ends.start()
    ends.join(0.2)
    assert ends.is_alive()
    assert Fake.living == 1
    second.__exit__(None, None, None)
    ends.join(30)
    assert (ends.is_alive(), Fake.living) == (False, 0)


def test_who_comes_after_its_end_starts_another(tmp_path: Path) -> None:
    for _ in range(2):
        with shared("p", tmp_path) as target:
            assert isinstance(target, Fake)
    assert (Fake.started, Fake.living) == (2, 0)


def test_one_that_died_is_noticed_by_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with shared("p", tmp_path), shared("p", tmp_path) as joined:
        joined.check()
    monkeypatch.setattr(sharing, "RealTarget", _Dead)
    dead = pytest.raises(AssertionError, match="these have died: a part")
    with shared("p", tmp_path), shared("p", tmp_path) as joined, dead:
        joined.check()


class _Dead(Fake):
    def __init__(self, profile: str) -> None:
        super().__init__(profile)
        self.part = ProcessId(os.getpid(), "another time")
