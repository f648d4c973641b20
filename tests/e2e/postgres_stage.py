"""Where rows run on PostgreSQL: two schedulers, two triggerers, two clusters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

from kftrain_local.agent.agent import state_folder
from tests.e2e.breakable import DATABASE
from tests.e2e.postgres import Postgres
from tests.e2e.stage import Object, Stage, connection_to, until

_PARALLELISM = 8
"""Tasks at once for each scheduler: more than two cores can run."""


class PostgresStage(Stage):
    """Connections are stored in Airflow's database, so that they can be edited."""

    def __init__(self, folder: Path, programs: Path, *kubeconfigs: Path) -> None:
        """`programs`: the folder of PostgreSQL's programs."""
        super().__init__(folder, *kubeconfigs)
        self._programs = programs

    async def open(
        self, tasks: Mapping[str, Object], connections: set[str], ending: AsyncExitStack
    ) -> None:
        state = ending.enter_context(state_folder(self.folder / "database"))
        self._database = await ending.enter_async_context(Postgres(self._programs, state))
        await super().open(tasks, connections, ending)
        for name, proxy in self.proxies.items():
            await self.airflow.post("connections", stored(name, proxy.kubeconfig))
        for part in ("scheduler", "triggerer"):
            await self.airflow.start(part, 2)
        await until(self._has_two_of_each, "both schedulers and both triggerers run")

    def in_environment(self) -> tuple[dict[str, str], dict[str, str]]:
        settings = {
            DATABASE.removeprefix("AIRFLOW__"): self._database.url,
            "CORE__PARALLELISM": str(_PARALLELISM),
            # A scheduler or triggerer is taken for dead when a row freezes it, and not because the
            # machine is busy: otherwise the two take tasks from each other all the time.
            "SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "60",
            "TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "60",
        }
        return settings, {}

    async def _has_two_of_each(self) -> bool:
        found = await self.airflow.schedulers(), await self.airflow.triggerers()
        return [len(each) for each in found] == [2, 2]


def stored(name: str, kubeconfig: Path) -> Object:
    """A connection as the REST API accepts it."""
    said = connection_to(kubeconfig)
    return {"connection_id": name, **said, "extra": json.dumps(said["extra"])}
