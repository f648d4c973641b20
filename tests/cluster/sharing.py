"""One real target for all processes of a run: `pytest tests/cluster --target real -n 4`.

The first process starts it. The others learn where it is, and use it until the last one has
finished. Profiles run one after the other: a process that has finished one waits for its end.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.targets import RealTarget, Target
from tests.control_plane.api import Api
from tests.control_plane.launcher import forget_history
from tests.control_plane.processes import ProcessId


@contextmanager
def shared(profile: str, folder: Path) -> Iterator[Target]:
    """The target of this profile; `folder` is that of the run."""
    place, users = folder / f"{profile}.json", folder / f"{profile}.users"
    starting = folder / f"{profile}.starting"

    def wait_for_the_others() -> None:
        with locked(starting, fcntl.LOCK_EX):
            place.unlink()
        with locked(users, fcntl.LOCK_EX):
            pass

    target: Target
    with ExitStack() as undo:
        with locked(starting, fcntl.LOCK_EX):
            if place.exists():
                undo.enter_context(locked(users, fcntl.LOCK_SH))
                target = JoinedTarget(json.loads(place.read_text(encoding="utf-8")))
            else:
                target = undo.enter_context(RealTarget(profile))
                place.write_text(json.dumps(target.description()), encoding="utf-8")
                undo.callback(wait_for_the_others)
        yield target


class JoinedTarget:
    """The real target that another process has started and will stop, from its description."""

    name = "real"

    def __init__(self, found: dict[str, Any]) -> None:
        self.kubeconfig = Path(found["kubeconfig"])
        self.api = Api(*found["api"])
        self._etcd = Api(*found["etcd"])
        self._parts = {name: ProcessId(*fields) for name, fields in found["parts"].items()}

    def __enter__(self) -> JoinedTarget:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def forget_history(self) -> None:
        forget_history(self.api, self._etcd)

    def check(self) -> None:
        dead = [name for name, process in self._parts.items() if not process.lives()]
        assert not dead, f"these have died: {', '.join(dead)}"


@contextmanager
def locked(file: Path, how: int) -> Iterator[None]:
    with file.open("w") as opened:
        fcntl.flock(opened, how)
        yield


def folder_of_the_run(config: pytest.Config, factory: pytest.TempPathFactory) -> Path:
    """The folder of all processes of the run."""
    folder = factory.getbasetemp()
    return folder.parent if hasattr(config, "workerinput") else folder
