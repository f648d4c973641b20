"""The result of a row: counted from what its trainings have written and what is in the cluster."""

from __future__ import annotations

import fcntl
import json
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple


class Trainings(NamedTuple):
    """The trainings of all runs in a folder, from what they have written."""

    begun: int
    ended: int
    doubled: int
    """Those that trained at the same time as another one of their run."""
    alive: int
    """Those that still hold their lock."""

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


def trained_twice(folder: Path) -> list[str]:
    """The runs that started more than once."""
    words = {
        file.stem: Counter(line.partition(" ")[0] for line in file.read_text().splitlines())
        for file in sorted(folder.glob("[!w]*.log"))
    }
    return [run for run, counted in words.items() if counted["begin"] > 1]


def last_error(log: Path) -> str:
    """Airflow writes a line of JSON for each event."""
    found = ""
    for line in log.read_text(errors="replace").splitlines():
        event = _read(line)
        if event.get("level") in ("error", "critical"):
            details = event.get("error_detail") or [{}]
            found = f"{event.get('event')} {details[-1].get('exc_value', '')}".strip()
    return found


def _read(line: str) -> dict[str, Any]:
    try:
        event = json.loads(line)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}


class Result(NamedTuple):
    """All four numbers must be 0."""

    state: str
    lost: int
    """Trainings that are missing, and tasks that did not end as they should."""
    doubled: int
    """Trainings at the same time as another one of their run, or more of them than expected."""
    killed: int
    """Trainings that were ended although nobody wanted that."""
    leaked: int
    """Unfinished jobs and running trainings after the end of their task and the grace period."""
    seconds: float
    error: str = ""
    """Why the row could not run to its end."""
    story: str = ""
    """What the logs say about tasks that did not end as they should."""

    def __str__(self) -> str:
        fields = (f"{name}: {value}" for name, value in self._asdict().items() if value != "")
        return "\n".join(fields)

    @property
    def is_good(self) -> bool:
        return not (self.error or self.lost or self.doubled or self.killed or self.leaked)
