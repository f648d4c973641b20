"""One control plane per machine, and nothing left of one whose launcher was killed.

Two of the operators' ports and folders are constants, so two control planes would disturb each
other. The holder of the lock records its processes; the next holder ends them if they still run.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from tests.control_plane.build import Say
from tests.control_plane.errors import Busy, ControlPlaneError
from tests.control_plane.processes import ProcessId, process_id, sweep

# Not the user's own temporary folder: TMPDIR may differ between shells, but there is one machine.
HOME = Path("/tmp/airflow-kftrain-control-plane")


class Record(NamedTuple):
    """What the holder of the lock has recorded."""

    launcher: ProcessId
    profile: str
    kubeconfig: str
    """Empty until the control plane is ready."""
    stoppable: bool
    """Whether it was started to be kept running, so that others may stop it (`down`)."""
    processes: tuple[ProcessId, ...] = ()


class MachineLock:
    """Held from `acquire` to `release`; while it is held, `state` belongs to the holder."""

    def __init__(self, say: Say, home: Path = HOME) -> None:
        self._say = say
        self._home = home
        self._file: IO[str] | None = None
        self.state = home / "state"

    def acquire(self, *, wait: bool) -> None:
        _own_folder(self._home)
        file = (self._home / "lock").open("w")
        try:
            self._take(file, wait=wait)
            self._file = file
            self._sweep()
            self.state.mkdir()
        except BaseException:
            self._file = None
            file.close()
            raise

    def write(self, record: Record) -> None:
        fresh = self._home / "record.fresh"
        fresh.write_text(json.dumps(record), encoding="utf-8")
        fresh.replace(self._home / "record.json")

    def release(self) -> None:
        if self._file is None:
            return
        shutil.rmtree(self.state, ignore_errors=True)
        (self._home / "record.json").unlink(missing_ok=True)
        self._file.close()
        self._file = None

    def _take(self, file: IO[str], *, wait: bool) -> None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _describe(read_record(self._home))
            if not wait:
                raise Busy(f"a control plane is up already ({holder})") from None
            self._say(f"control plane: waiting for the one that is up ({holder})")
            fcntl.flock(file, fcntl.LOCK_EX)

    def _sweep(self) -> None:
        """Only while holding the lock: then the process that wrote the record is certainly gone."""
        record = read_record(self._home)
        ended = sweep(record.processes) if record else 0
        if record or self.state.exists():
            self._say(f"control plane: swept up after one that was killed ({ended} processes)")
        if self.state.exists():
            shutil.rmtree(self.state)
        (self._home / "record.json").unlink(missing_ok=True)


def read_record(home: Path = HOME) -> Record | None:
    """None if there is no record, or if it cannot be read."""
    try:
        fields = json.loads((home / "record.json").read_text(encoding="utf-8"))
        launcher, profile, kubeconfig, stoppable, processes = fields
        return Record(_id(launcher), profile, kubeconfig, stoppable, tuple(map(_id, processes)))
    except (OSError, ValueError, TypeError):
        return None


def record_of(
    profile: str, kubeconfig: str, processes: Sequence[ProcessId], *, stoppable: bool
) -> Record:
    launcher = process_id(os.getpid())
    return Record(launcher, profile, kubeconfig, stoppable, tuple(processes))


def _id(fields: Any) -> ProcessId:
    pid, started = fields
    return ProcessId(int(pid), str(started))


def _describe(record: Record | None) -> str:
    if record is None:
        return "just starting or ending"
    return f"profile {record.profile}, process {record.launcher.pid}"


def _own_folder(home: Path) -> None:
    """Private, since processes are ended because of what is written in it."""
    try:
        home.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise ControlPlaneError(f"cannot make the folder {home}: {error.strerror}") from error
    found = home.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise ControlPlaneError(
            f"{home} belongs to another user; one control plane a machine, so that user has to end"
            " theirs and remove the folder"
        )
