"""What a scenario works with: one namespace of a target, and the jobs in it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from tests.cluster.recorder import Recorder
from tests.cluster.targets import Target
from tests.control_plane.api import MERGE, Answer, Manifest

T = TypeVar("T")

_PATIENCE = 60.0
WORKLOAD = ("kueue.x-k8s.io/v1beta2", "Workload")
_SUCCESS = ("Succeeded", "Complete")  # a batch Job and a TrainJob say Complete
_FAILURE = "Failed"


def eventually(
    look: Callable[[], T | None],
    seen: Callable[[], object] = lambda: "",
    patience: float = _PATIENCE,
) -> T:
    """Returns what `look` returns, as soon as that is something. After so many seconds it fails,
    and shows what is `seen`."""
    end = time.monotonic() + patience
    while not (found := look()):
        if time.monotonic() > end:
            raise AssertionError(f"waited in vain; seen: {json.dumps(seen(), indent=1)}")
        time.sleep(0.05)
    return found


class Event(NamedTuple):
    """The parts of a Kubernetes event that are the same each time."""

    object: str
    """Kind/name"""
    type: str
    reason: str
    message: str


class World:
    def __init__(self, target: Target, namespace: str) -> None:
        self.target = target
        self.namespace = namespace
        self.api = target.api
        self.recorder: Recorder | None = None

    def path(self, kind: str, name: str | None = None, api_version: str = "v1") -> str:
        return self.api.path(api_version, kind, self.namespace, name)

    def create(self, manifest: Manifest, **query: object) -> Manifest:
        """Creates an object in this namespace. Returns what the server has made of it."""
        answer = self.try_create(manifest, **query)
        assert answer.code == 201, answer.message
        return answer.object

    def try_create(self, manifest: Manifest, **query: object) -> Answer:
        metadata = {**manifest["metadata"], "namespace": self.namespace}
        return self.api.create({**manifest, "metadata": metadata}, **query)

    def submit(self, manifest: Manifest) -> Job:
        """Creates the job that the scenario is about, and records it from now on."""
        assert self.recorder is None, "one recorded job a scenario"
        paths = {"job": self.path(manifest["kind"], None, manifest["apiVersion"])}
        paths |= {"pod": self.path("Pod"), "event": self.path("Event")}
        if self.api.serves(*WORKLOAD):
            paths["workload"] = self.path(WORKLOAD[1], None, WORKLOAD[0])
        self.recorder = Recorder(self.api, self.namespace, paths)
        return self.start(manifest)

    def start(self, manifest: Manifest) -> Job:
        """Creates a job without recording it: a recording is about one job."""
        created = self.create(manifest, fieldValidation="Strict")
        path = self.path(manifest["kind"], created["metadata"]["name"], manifest["apiVersion"])
        return Job(self, path, created)

    def find(self, kind: str, name: str, api_version: str = "v1") -> Manifest:
        """An object of this namespace as it is now; empty if it does not exist."""
        answer = self.api.call("GET", self.path(kind, name, api_version))
        return answer.object if answer.ok else {}

    def listed(self, kind: str, api_version: str = "v1") -> list[Manifest]:
        """All objects of a kind, by name."""
        path = self.path(kind, None, api_version)
        items = self.api.call("GET", path).required(path)["items"]
        return sorted(items, key=lambda item: str(item["metadata"]["name"]))

    def names(self, kind: str, api_version: str = "v1") -> list[str]:
        return [item["metadata"]["name"] for item in self.listed(kind, api_version)]

    def pod(self, name: str, *command: str, **spec: Any) -> Pod:
        """Creates a pod with one container, `main`; `container` adds fields to it."""
        main = {"name": "main", "image": "x", "command": list(command), **spec.pop("container", {})}
        body = {"restartPolicy": "Never", "containers": [main], **spec}
        self.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": body})
        return Pod(self, name)

    def events(self) -> set[Event]:
        """All events of this namespace."""
        listed = self.api.call("GET", self.path("Event")).required("the events")
        return {
            Event(
                f"{item['involvedObject']['kind']}/{item['involvedObject']['name']}",
                item["type"],
                item["reason"],
                item["message"],
            )
            for item in listed["items"]
        }

    def told(self, reason: str, about: str = "") -> Event:
        """Waits for an event with that reason, about Kind/name."""

        def look() -> Event | None:
            for event in self.events():
                if event.reason == reason and event.object.startswith(about):
                    return event
            return None

        return eventually(look, lambda: sorted(self.events()))


class Pod:
    """A pod by its name."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.path = world.path("Pod", name)

    def now(self) -> Manifest:
        return self.world.api.call("GET", self.path).required(f"pod {self.name}")

    def evict(self) -> None:
        """As a drain of its node does."""
        metadata = {"name": self.name, "namespace": self.world.namespace}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
        self.world.api.call("POST", f"{self.path}/eviction", body).required("an eviction")

    @property
    def status(self) -> Manifest:
        return dict(self.now()["status"])

    def until(self, good: Callable[[Manifest], Any]) -> Manifest:
        """The pod, as soon as it is `good`."""

        def look() -> Manifest | None:
            pod = self.now()
            return pod if good(pod) else None

        return eventually(look, self.now)

    def phase(self, *phases: str) -> Manifest:
        """Waits until the pod is in one of these phases. Returns its status then."""
        return dict(self.until(lambda pod: pod["status"].get("phase") in phases)["status"])

    def ends(self) -> Manifest:
        """Waits for its end. Returns its status then."""
        return self.phase("Succeeded", "Failed")

    def env(self, container: str | None = None) -> dict[str, Any]:
        """The variables of its spec: the values, or the sources of those without a value."""
        (spec,) = (
            spec
            for spec in self.now()["spec"]["containers"][: None if container else 1]
            if container in (None, spec["name"])
        )
        return {v["name"]: v.get("value", v.get("valueFrom", "")) for v in spec.get("env") or []}

    def log(self, **options: object) -> Answer:
        return self.world.api.call("GET", f"{self.path}/log", query=options)

    def delete(self, **options: Any) -> Answer:
        return self.world.api.call("DELETE", self.path, options or None)

    def is_gone(self) -> bool:
        return self.world.api.call("GET", self.path).code == 404


class Job:
    """The custom resource that a scenario is about."""

    def __init__(self, world: World, path: str, created: Manifest) -> None:
        self.world = world
        self.path = path
        self.created = created
        self.name = str(created["metadata"]["name"])

    def now(self) -> Manifest:
        return self.world.api.call("GET", self.path).required(f"job {self.name}")

    @property
    def status(self) -> Manifest:
        return dict(self.now().get("status") or {})

    def conditions(self) -> dict[str, Manifest]:
        """By their types."""
        return {item["type"]: item for item in self.status.get("conditions") or []}

    def is_true(self, condition: str) -> bool:
        return bool(self.conditions().get(condition, {}).get("status") == "True")

    def until(self, good: Callable[[Manifest], Any]) -> Manifest:
        """The job, as soon as it is `good`."""

        def look() -> Manifest | None:
            job = self.now()
            return job if good(job) else None

        return eventually(look, self._seen)

    def counts(self, **replicas: Manifest) -> None:
        """Waits until the status has these counts: `Worker={"active": 1}`."""

        def look() -> bool:
            counted = self.status.get("replicaStatuses") or {}
            return bool(counted.items() >= replicas.items())

        eventually(look, self._seen)

    def becomes(self, *conditions: str) -> Manifest:
        """Waits until one of the conditions is True. Returns that condition."""

        def look() -> Manifest | None:
            now = self.conditions()
            true = [now[name] for name in conditions if now.get(name, {}).get("status") == "True"]
            return true[0] if true else None

        return eventually(look, self._seen)

    def succeeds(self) -> Manifest:
        """Waits for its success. Returns the condition."""
        return self._ends(_SUCCESS, "Succeeded")

    def fails(self) -> Manifest:
        """Waits for its failure. Returns the condition."""
        return self._ends((_FAILURE,), "Failed")

    def _ends(self, wanted: tuple[str, ...], verdict: str) -> Manifest:
        end = self.becomes(*_SUCCESS, _FAILURE)
        assert end["type"] in wanted, self._seen()
        if self.world.recorder is not None:
            self.world.recorder.verdict = verdict
        return end

    def pods(self) -> list[Manifest]:
        """All pods of the namespace, by name: a scenario has one job."""
        return self.world.listed("Pod")

    def pod_names(self) -> list[str]:
        return self.world.names("Pod")

    def pod(self, name: str) -> Pod:
        """The pod of that name, as soon as it exists."""
        eventually(lambda: name in self.pod_names(), self._seen)
        return Pod(self.world, name)

    def first_seen(self, name: str) -> Manifest:
        """A pod as it is first listed: one that is read by its name may be gone by then."""
        return eventually(
            lambda: next((pod for pod in self.pods() if pod["metadata"]["name"] == name), None),
            self._seen,
        )

    def patch(self, body: Mapping[str, Any]) -> Manifest:
        answer = self.world.api.call("PATCH", self.path, body, content_type=MERGE)
        return answer.required(f"a patch of {self.name}")

    def delete(self, **options: Any) -> Answer:
        """`options` are fields of DeleteOptions."""
        return self.world.api.call("DELETE", self.path, options or None)

    def is_gone(self) -> bool:
        return self.world.api.call("GET", self.path).code == 404

    def _seen(self) -> object:
        """Explains why a scenario waits for something that does not happen."""
        pods = {pod["metadata"]["name"]: pod["status"] for pod in self.pods()}
        return {"job": self.now(), "pods": pods, "events": sorted(self.world.events())}
