"""Both hooks, so that a scenario can use either of them in the same way."""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from airflow_kftrain.hooks.permissions import Permission, role_rules
from airflow_kftrain.hooks.training_job_async import AsyncTrainingJobHook
from tests.cluster.world import World
from tests.control_plane.access import service_account_token
from tests.control_plane.api import Manifest

CONNECTION = "cluster"


def set_connection(patch: pytest.MonkeyPatch, name: str = CONNECTION, **extra: Any) -> None:
    """An Airflow connection in an environment variable."""
    said = {"conn_type": "kubernetes", "extra": extra}
    patch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(said))


class Looped:
    """The asynchronous hook in an event loop of its own, with the methods of the blocking one.
    `with` ends the loop like asyncio.run, with warnings about everything that is left open."""

    def __init__(self, connection: str | None) -> None:
        self._hook = AsyncTrainingJobHook(connection)
        self._loop = asyncio.new_event_loop()

    def __enter__(self) -> Looped:
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._hook, name)

        def call(*words: Any, **options: Any) -> Any:
            given = verb(*words, **options)
            if inspect.isawaitable(given):
                return self.run(given)
            return self._each(given)

        return call

    def run(self, work: Awaitable[Any]) -> Any:
        async def wait() -> Any:
            return await work

        return self._loop.run_until_complete(wait())

    def _each(self, items: AsyncGenerator[Any, None]) -> Iterator[Any]:
        try:
            while True:
                try:
                    yield self.run(items.__anext__())
                except StopAsyncIteration:
                    return
        finally:
            self.run(items.aclose())


def meanwhile(work: Callable[[], object]) -> threading.Thread:
    """Starts it in a thread of its own."""
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def with_owner(manifest: Manifest, namespace: str, owner: str = "me") -> Manifest:
    """As the operators submit it."""
    notes = {"airflow-kftrain/owner": owner}
    metadata = {**manifest["metadata"], "namespace": namespace, "annotations": notes}
    return {**manifest, "metadata": {"labels": {"for": "test"}, **metadata}}


def be_user(
    world: World, patch: pytest.MonkeyPatch, folder: Path, rules: Sequence[Manifest]
) -> None:
    """The connection has only these permissions, in the namespace of the world."""
    token = service_account_token(world.api, "user", world.namespace, rules)
    config = yaml.safe_load(world.target.kubeconfig.read_text(encoding="utf-8"))
    config["users"] = [{"name": config["users"][0]["name"], "user": {"token": token}}]
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    set_connection(patch, kube_config_path=str(file), namespace=world.namespace)


def without(missing: Permission) -> list[Manifest]:
    """All rules except one verb on one resource."""
    rules = role_rules()
    for rule in rules:
        if (rule["apiGroups"], rule["resources"]) == ([missing.group], [missing.resource]):
            rule["verbs"] = [verb for verb in rule["verbs"] if verb != missing.verb]
    return [rule for rule in rules if rule["verbs"]]
