"""A real Airflow in a folder, on 127.0.0.1: its four parts as processes, and its REST API."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from kftrain_local.agent.processes import Record, Table, kill_all

_PARTS = {
    # Their log servers would listen on all addresses, and all logs are in one folder anyway.
    "scheduler": ("scheduler", "--skip-serve-logs"),
    "api-server": ("api-server",),
    "dag-processor": ("dag-processor",),
    "triggerer": ("triggerer", "--skip-serve-logs"),
}
_HEALTH = ("metadatabase", "scheduler", "triggerer", "dag_processor")
_PATIENCE = 300
_LOOK_EVERY = 0.5


class DemoFailed(Exception):
    """What is wrong, for the person who started the demo."""


class Airflow:
    """`async with Airflow(folder, dags, settings) as airflow:` is ready when it is entered.

    `folder` comes from `state_folder`, whose guard ends the processes if this one dies.
    """

    def __init__(
        self,
        folder: Path,
        dags: Path,
        settings: Mapping[str, str],
        say: Callable[[str], None],
        path: str = "",
    ) -> None:
        """`path` is that of its pages, such as `/team`."""
        self._say = say
        self.home = folder / "airflow"
        self._records = folder / "pods" / "airflow"
        self._origin = f"http://127.0.0.1:{free_port()}"
        self._path = path
        self.url = self._origin + path
        self._env = {**_inherited(), **_settings(self.home, dags, self.url), **settings}
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self._ending = AsyncExitStack()

    async def __aenter__(self) -> Airflow:
        self._records.mkdir(parents=True, mode=0o700)
        self.home.mkdir(mode=0o700)
        async with AsyncExitStack() as ending:
            ending.push_async_callback(self._end)
            self._say("creating Airflow's database")
            migration = await self._start("db", "db", "migrate")
            if await migration.wait() != 0:
                raise DemoFailed(f"Airflow's database cannot be created:\n{self.log('db')}")
            del self._running["db"]
            self._say(f"starting Airflow's {', '.join(_PARTS)}")
            for name, words in _PARTS.items():
                await self._start(name, *words)
            self._session = await ending.enter_async_context(aiohttp.ClientSession(self._origin))
            await self._until_healthy()
            self._session.headers.update(await self._credentials())
            self._say(f"Airflow is ready: {self.url}")
            self._ending = ending.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._ending.aclose()

    async def run(self) -> None:
        """Raises DemoFailed as soon as a part has ended."""
        while True:
            self._check()
            await asyncio.sleep(_LOOK_EVERY)

    def log(self, part: str) -> str:
        """The end of the log of a part."""
        lines = (self.home / f"{part}.log").read_text(errors="replace").splitlines()
        return "\n".join(f"  | {line}" for line in lines[-25:])

    # ---- the REST API

    async def get(self, path: str) -> Any:
        return await self._call("GET", path)

    async def post(self, path: str, body: Any) -> Any:
        return await self._call("POST", path, json=body)

    async def patch(self, path: str, body: Any) -> Any:
        return await self._call("PATCH", path, json=body)

    async def find(self, path: str) -> Any:
        """None if it does not exist (yet)."""
        try:
            return await self.get(path)
        except aiohttp.ClientResponseError as error:
            if error.status == 404:
                return None
            raise

    async def _call(self, method: str, path: str, **options: Any) -> Any:
        async with self._session.request(
            method, f"{self._path}/api/v2/{path}", **options
        ) as response:
            if response.status >= 400 and response.status != 404:
                text = (await response.text())[:500]
                raise DemoFailed(f"{method} {path}: Airflow answers {response.status}: {text}")
            response.raise_for_status()
            return await response.json()

    async def _credentials(self) -> dict[str, str]:
        """Every user is an admin here."""
        async with self._session.get(f"{self._path}/auth/token") as response:
            return {"Authorization": f"Bearer {(await response.json())['access_token']}"}

    # ---- its processes

    async def _start(self, part: str, *words: str) -> asyncio.subprocess.Process:
        with open(self.home / f"{part}.log", "wb") as output:  # noqa: ASYNC230  # at once
            self._running[part] = await Record(self._records / f"{part}.record").start(
                sys.executable,
                ["python", "-m", "airflow", *words],
                self._env,
                str(self.home),
                output.fileno(),
            )
        return self._running[part]

    def _check(self) -> None:
        for part, process in self._running.items():
            if process.returncode is not None:
                said = f"exit code {process.returncode}; the end of its log:\n{self.log(part)}"
                raise DemoFailed(f"Airflow's {part} has ended with {said}")

    async def _until_healthy(self) -> None:
        end = asyncio.get_running_loop().time() + _PATIENCE
        while not await self._is_healthy():
            self._check()
            if asyncio.get_running_loop().time() > end:
                logs = "\n".join(f"{part}:\n{self.log(part)}" for part in self._running)
                raise DemoFailed(f"Airflow is not ready after {_PATIENCE} s.\n{logs}")
            await asyncio.sleep(_LOOK_EVERY)

    async def _is_healthy(self) -> bool:
        try:
            async with self._session.get(f"{self._path}/api/v2/monitor/health") as response:
                health = await response.json()
        except (aiohttp.ClientError, ValueError):
            return False
        return all(health.get(part, {}).get("status") == "healthy" for part in _HEALTH)

    async def _end(self) -> None:
        records = [Record(file) for file in self._records.glob("*.record")]

        def ours(processes: Table) -> set[int]:
            return set[int]().union(*(record.members(processes) for record in records))

        kill_all(ours)
        await asyncio.gather(*(process.wait() for process in self._running.values()))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _inherited() -> dict[str, str]:
    """Without variables for another Airflow or Python; bytecode is kept."""
    away = ("AIRFLOW_", "PYTHON", "KUBE")
    return {name: value for name, value in os.environ.items() if not name.startswith(away)}


def _settings(home: Path, dags: Path, url: str) -> dict[str, str]:
    sections = {
        "CORE": {
            "DAGS_FOLDER": str(dags),
            "LOAD_EXAMPLES": "False",
            "DAGS_ARE_PAUSED_AT_CREATION": "False",
            "SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
            "EXECUTION_API_SERVER_URL": f"{url}/execution/",
            "PARALLELISM": "4",
            "HOSTNAME_CALLABLE": "socket.gethostname",  # needs no name server
        },
        "API": {
            "HOST": "127.0.0.1",
            "PORT": str(urlsplit(url).port),
            "WORKERS": "1",
            "BASE_URL": url,
        },
        # Nobody listens there: the log servers are disabled, and those of others are not used.
        "LOGGING": {"WORKER_LOG_SERVER_PORT": "1", "TRIGGER_LOG_SERVER_PORT": "1"},
    }
    named = {
        f"AIRFLOW__{section}__{name}": value
        for section, options in sections.items()
        for name, value in options.items()
    }
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    direct = {name: f"{os.environ.get(name, '')},127.0.0.1" for name in ("NO_PROXY", "no_proxy")}
    return {"AIRFLOW_HOME": str(home), "PATH": path, **direct, **named}
