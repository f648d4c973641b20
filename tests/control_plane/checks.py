"""Checks whether a part is ready. Each check asks the part itself, and says in words what is
missing."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Mapping
from typing import Any

from tests.control_plane.api import Answer, Api, Manifest
from tests.control_plane.certificates import LOOPBACK
from tests.control_plane.errors import NotReady
from tests.control_plane.processes import Processes

Check = Callable[[], "str | None"]
"""None when ready, otherwise what is still missing."""

# Far more than a start takes, since the machine may be busy.
_PATIENCE_SECONDS = 120


def wait_for(checks: Mapping[str, Check], processes: Processes) -> None:
    """Waits until every part is ready. Raises PartDied or NotReady if one never is."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    for part, check in checks.items():
        while (missing := _ask(check)) is not None:
            processes.check()
            if time.monotonic() > deadline:
                log = processes.log_tail(part) if part in processes.pids() else ""
                raise NotReady(f"{part} is not ready after {_PATIENCE_SECONDS} s: {missing}; {log}")
            time.sleep(0.05)
    processes.check()


def _ask(check: Check) -> str | None:
    try:
        return check()
    except (OSError, http.client.HTTPException) as error:  # it does not listen yet
        return f"{type(error).__name__}: {error}"


def ok(api: Api, path: str) -> Check:
    """It answers over TLS, with our certificate, that it is healthy."""
    return lambda: _verdict(api.call("GET", path))


def answers_tls(port: int, ca_file: str) -> Check:
    """It serves TLS with our certificate, and HTTP over it; any code is fine."""
    api = Api(f"https://{LOOPBACK}:{port}", ca_file, None)

    def check() -> None:
        api.call("GET", "/")

    return check


def ok_without_tls(port: int, path: str) -> Check:
    """The health endpoint of operators is plain HTTP."""

    def check() -> str | None:
        connection = http.client.HTTPConnection(LOOPBACK, port, timeout=10)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return _verdict(Answer(response.status, response.read().decode()))
        finally:
            connection.close()

    return check


def leads(api: Api, namespace: str, lease: str) -> Check:
    """It holds its Lease: from then on the operator works."""

    def check() -> str | None:
        found = api.call("GET", api.path("coordination.k8s.io/v1", "Lease", namespace, lease))
        holder = found.object.get("spec", {}).get("holderIdentity")
        return None if holder else f"the Lease {namespace}/{lease} has no holder"

    return check


def serves(api: Api, crd: Manifest) -> Check:
    """A kind can be created some moments after its CRD."""
    spec = crd["spec"]
    versions = [f"{spec['group']}/{found['name']}" for found in spec["versions"] if found["served"]]

    def check() -> str | None:
        kind = spec["names"]["kind"]
        missing = [version for version in versions if not api.serves(version, kind)]
        return f"{kind} is not served: {missing}" if missing else None

    return check


def refuses(api: Api, manifest: Manifest, webhook: str) -> Check:
    """The connection between API server and webhook works: the webhook rejects an invalid
    object."""

    def check() -> str | None:
        answer = api.create(manifest, dryRun="All")
        return None if f'"{webhook}" denied the request' in answer.message else answer.message

    return check


def _verdict(answer: Answer) -> str | None:
    return None if answer.ok else f"{answer.code} {answer.text.strip()[-500:]}"


_POD: dict[str, Any] = {
    "restartPolicy": "Never",
    "containers": [{"name": "pytorch", "image": "none", "command": ["true"]}],
}


def _nonsense(api_version: str, kind: str, spec: dict[str, Any]) -> Manifest:
    metadata = {"name": "nonsense", "namespace": "default"}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


# An object that only this webhook of each operator rejects, by the name of the webhook.
NONSENSE: dict[str, Manifest] = {
    "validator.pytorchjob.training-operator.kubeflow.org": _nonsense(
        "kubeflow.org/v1",
        "PyTorchJob",
        {"pytorchReplicaSpecs": {"Master": {"replicas": 2, "template": {"spec": _POD}}}},
    ),
    "validator.trainjob.trainer.kubeflow.org": _nonsense(
        "trainer.kubeflow.org/v1alpha1", "TrainJob", {"runtimeRef": {"name": "no-such-runtime"}}
    ),
    "vjobset.kb.io": _nonsense(
        "jobset.x-k8s.io/v1alpha2",
        "JobSet",
        {
            "replicatedJobs": [{"name": "a", "template": {"spec": {"template": {"spec": _POD}}}}],
            "successPolicy": {"operator": "All", "targetReplicatedJobs": ["no-such-job"]},
        },
    ),
}

_BAD_QUEUE = _nonsense(
    "kubeflow.org/v1",
    "PyTorchJob",
    {"pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": {"spec": _POD}}}},
)
_BAD_QUEUE["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "Not_A_Name"}
NONSENSE_FOR_KUEUE: dict[str, Manifest] = {"vpytorchjob.kb.io": _BAD_QUEUE}
