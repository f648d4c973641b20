"""A PostgreSQL server in a temporary folder, on 127.0.0.1, as a user without rights."""

from __future__ import annotations

import asyncio
import os
import pwd
import secrets
import shutil
import signal
import tempfile
import time
from pathlib import Path

from demo.airflow import free_port
from kftrain_local.agent.processes import Record

_NOBODY = "nobody"
_PATIENCE = 60
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "300",
    # Nothing of it may outlive the test, not even in shared memory.
    "dynamic_shared_memory_type": "mmap",
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
}


def find_programs() -> Path | None:
    """The folder of initdb and postgres. Debian has one for each version, outside PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=_version)
    on_path = shutil.which("initdb")
    if on_path:
        found.append(Path(on_path).resolve())
    return found[-1].parent if found else None


def _version(initdb: Path) -> float:
    return float(initdb.parts[-3])


class Postgres:
    """`async with Postgres(programs, state) as postgres: postgres.url`

    `state` is a state folder, whose guard ends the server if this process dies.
    """

    def __init__(self, programs: Path, state: Path) -> None:
        self._programs = programs
        self._records = state / "pods" / "postgres"
        self._password = secrets.token_hex(16)
        self._port = free_port()

    @property
    def url(self) -> str:
        return f"postgresql+psycopg2://airflow:{self._password}@127.0.0.1:{self._port}/postgres"

    async def __aenter__(self) -> Postgres:
        self._records.mkdir(parents=True)
        self._folder = Path(tempfile.mkdtemp(prefix="kftrain-postgres-"))
        self._log = self._folder / "log"
        try:
            await self._make()
            await self._start()
        except BaseException:
            shutil.rmtree(self._folder)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server.returncode is None:
            self._server.send_signal(signal.SIGQUIT)  # at once
        await self._server.wait()
        shutil.rmtree(self._folder)

    async def _make(self) -> None:
        password = self._folder / "password"
        password.write_text(self._password)
        if os.geteuid() == 0:
            nobody = pwd.getpwnam(_NOBODY)
            for path in (self._folder, password):
                os.chown(path, nobody.pw_uid, nobody.pw_gid)
        made = await self._run(
            "initdb",
            *("--pgdata", str(self._folder / "data"), "--username", "airflow"),
            *("--auth", "scram-sha-256", "--pwfile", str(password)),
            *("--encoding", "UTF8", "--locale", "C", "--no-sync"),
        )
        assert await made.wait() == 0, f"initdb fails: {self._said()}"

    async def _start(self) -> None:
        options = [word for pair in _SETTINGS.items() for word in ("-c", "=".join(pair))]
        data = str(self._folder / "data")
        self._server = await self._run("postgres", "-D", data, "-p", str(self._port), *options)
        end = time.monotonic() + _PATIENCE
        while "ready to accept connections" not in self._said():
            assert self._server.returncode is None, f"PostgreSQL has ended: {self._said()}"
            assert time.monotonic() < end, f"PostgreSQL is not ready: {self._said()}"
            await asyncio.sleep(0.1)

    async def _run(self, program: str, *words: str) -> asyncio.subprocess.Process:
        """PostgreSQL refuses to run as root."""
        command = [str(self._programs / program), *words]
        if os.geteuid() == 0:
            group = f"--regid={pwd.getpwnam(_NOBODY).pw_gid}"
            command = ["setpriv", f"--reuid={_NOBODY}", group, "--clear-groups", *command]
        found = shutil.which(command[0])
        assert found is not None, f"no {command[0]} on PATH"
        record = Record(self._records / f"{program}.record")
        with open(self._log, "ab") as output:  # noqa: ASYNC230  # at once
            return await record.start(
                found, command, {"PATH": os.environ["PATH"]}, "/", output.fileno()
            )

    def _said(self) -> str:
        return self._log.read_text(errors="replace")
