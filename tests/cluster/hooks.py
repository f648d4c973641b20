"""Both hooks in the hands of a scenario, one like the other."""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from airflow_kftrain.hooks.permissions import Permission, role_rules
from airflow_kftrain.hooks.training_job_async import AsyncTrainingJobHook
from tests.control_plane.api import Manifest

CONNECTION = "cluster"


def set_connection(patch: pytest.MonkeyPatch, name: str = CONNECTION, **extra: Any) -> None:
    """An Airflow connection, as an environment variable says it."""
    said = {"conn_type": "kubernetes", "extra": extra}
    patch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(said))


class Looped:
    """The asynchronous hook in an event loop of its own, to be called like the synchronous one.
    `with` ends the loop as asyncio.run does, with warnings for what is left open."""

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


def without(missing: Permission) -> list[Manifest]:
    """All rules but for one verb on one resource."""
    rules = role_rules()
    for rule in rules:
        if (rule["apiGroups"], rule["resources"]) == ([missing.group], [missing.resource]):
            rule["verbs"] = [verb for verb in rule["verbs"] if verb != missing.verb]
    return [rule for rule in rules if rule["verbs"]]
