"""Objects for the scenarios about the API itself: one built-in kind, and one of our kinds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.cluster.jobs import pytorch_job, replica
from tests.cluster.world import World, eventually
from tests.control_plane.api import MERGE, Answer, Manifest, Watch

HOLD = "example.com/hold"
NO_UID = "00000000-0000-0000-0000-000000000000"


def secret(name: str = "s", **metadata: Any) -> Manifest:
    """Not a ConfigMap: Kubernetes itself creates one in each namespace."""
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, **metadata}}


def config_map(name: str, **data: str) -> Manifest:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def still_job(name: str = "job", **metadata: Any) -> Manifest:
    """Suspended, so that its operator leaves it alone."""
    job = pytorch_job({"Master": replica("pytorch")}, run_policy={"suspend": True})
    return {**job, "metadata": {"name": name, **metadata}}


Make = Callable[..., Manifest]

of_either_kind = pytest.mark.parametrize("make", [secret, still_job], ids=["built-in", "custom"])


class Collection:
    """The objects of one kind in the namespace of a world."""

    def __init__(self, world: World, make: Make) -> None:
        self._world = world
        self._make = make
        sample = make()
        self.path = world.path(sample["kind"], None, sample["apiVersion"])

    def create(self, name: str, **metadata: Any) -> Manifest:
        """Returns the object when only the scenario will write to it any more."""
        created = self._world.create(self._make(name, **metadata))
        if self._make is secret:
            return created
        return eventually(lambda: self._settled(name, created))

    def _settled(self, name: str, created: Manifest) -> Manifest | None:
        """Waits until its operator has reported everything, Created and Suspended; or it is
        gone."""
        answer = self.call("GET", name)
        if answer.code == 404:
            return created
        status = answer.object.get("status") or {}
        return answer.object if len(status.get("conditions") or []) == 2 else None

    def call(self, method: str, name: str = "", body: Any = None, **options: Any) -> Answer:
        path = f"{self.path}/{name}" if name else self.path
        return self._world.api.call(method, path, body, **options)

    def get(self, name: str) -> Manifest:
        return self.call("GET", name).required(name)

    def has(self, name: str) -> bool:
        return self.call("GET", name).code == 200

    def is_gone(self, name: str) -> None:
        """Waits until there is no object of that name."""
        eventually(lambda: self.call("GET", name).code == 404, lambda: self.call("GET", name).text)

    def listed(self, **query: object) -> Answer:
        return self.call("GET", query=query)

    def names(self, **query: object) -> list[str]:
        return names(self.listed(**query).required("the list"))

    def patch(self, name: str, body: Any, content_type: str = MERGE, **query: object) -> Answer:
        return self.call("PATCH", name, body, content_type=content_type, query=query)

    def delete(self, name: str, options: Manifest | None = None, **query: object) -> Answer:
        return self.call("DELETE", name, options, query=query)

    def watch(self, **query: object) -> Watch:
        return self._world.api.watch(self.path, **query)

    def version(self) -> str:
        """The version of the list as it is now."""
        return str(self.listed().required("the list")["metadata"]["resourceVersion"])


def one_job(world: World) -> Collection:
    """With one job, `job`."""
    jobs = Collection(world, still_job)
    jobs.create("job")
    return jobs


def names(collection: Manifest) -> list[str]:
    return sorted(item["metadata"]["name"] for item in collection["items"])


def refusal(answer: Answer) -> tuple[int, str | None]:
    return answer.code, answer.reason


def causes(answer: Answer) -> dict[str, str]:
    """The reasons by field."""
    return {cause["field"]: cause["reason"] for cause in answer.object["details"]["causes"]}
