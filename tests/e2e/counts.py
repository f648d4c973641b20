"""What became of a row: counted from what its trainings wrote and from what is in the cluster."""

from __future__ import annotations

import fcntl
from collections import Counter
from pathlib import Path
from typing import NamedTuple


class Trainings(NamedTuple):
    """Of all runs in a folder, from their own words."""

    begun: int
    ended: int
    doubled: int
    """Trained beside another one of the same run."""
    alive: int
    """Hold their lock still."""

    @property
    def killed(self) -> int:
        return self.begun - self.ended - self.alive


def trainings(folder: Path) -> Trainings:
    words: Counter[str] = Counter()
    for file in folder.glob("[!w]*.log"):
        words.update(line.partition(" ")[0] for line in file.read_text().splitlines())
    alive = sum(_is_held(file) for file in folder.glob("[!w]*.lock"))
    return Trainings(words["begin"], words["end"], words["doubled"], alive)


def _is_held(file: Path) -> bool:
    with open(file) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


class Result(NamedTuple):
    """All four have to be 0."""

    state: str
    lost: int
    """Trainings that should have been and were not, tasks without the right end."""
    doubled: int
    """Trainings beside another one of the same run, or more of them than there should have been."""
    killed: int
    """Trainings that were ended although nobody wanted that."""
    leaked: int
    """Jobs that live, and trainings that go on, after the end of their task and the grace."""
    seconds: float
    error: str = ""
    """What kept the row from being played to its end."""

    @property
    def is_good(self) -> bool:
        return not (self.error or self.lost or self.doubled or self.killed or self.leaked)
