"""PyTorchJob and TFJob as training-operator 1.9 understands them: the defaults of a job, and its
pods and services."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from kftrain_local.kinds import PYTORCH_JOB, TF_JOB, JobKind

Object = dict[str, Any]
Variables = Iterator[tuple[str, str]]

PREFIX = "training.kubeflow.org"


class _Flavour(NamedTuple):
    """The differences between the kinds."""

    port_name: str
    port: int
    policy: str
    """The restart policy of a role without one."""


_FLAVOURS = {
    PYTORCH_JOB.kind: _Flavour("pytorchjob-port", 23456, "OnFailure"),
    TF_JOB.kind: _Flavour("tfjob-port", 2222, "Never"),
}


class V1Job:
    def __init__(self, kind: JobKind, job: Object) -> None:
        self.kind = kind
        self._flavour = _FLAVOURS[kind.kind]
        self.name: str = job["metadata"]["name"]
        self.namespace: str = job["metadata"]["namespace"]
        self.spec: Object = copy.deepcopy(job["spec"])
        self.policy: Object = {"cleanPodPolicy": "None", **(self.spec.get("runPolicy") or {})}
        known = {role.lower(): role for role in kind.roles}
        roles = self.spec.get(kind.replicas_key) or {}
        self.roles = {
            known.get(name.lower(), name): self._completed(group) for name, group in roles.items()
        }
        self.labels = {
            f"{PREFIX}/job-name": self.name,
            f"{PREFIX}/operator-name": f"{kind.kind.lower()}-controller",
        }
        leaders = {"Master", "Chief"} if kind is TF_JOB else {"Master"}
        self.leaders = leaders & self.roles.keys()
        """The roles whose end is that of the job. Without such a role the workers decide."""

    def _completed(self, group: Object) -> Object:
        flavour = self._flavour
        for container in group["template"]["spec"]["containers"]:
            ports = container.get("ports") or []
            if container["name"] == self.kind.container and not _has_port(ports, flavour):
                added = {"name": flavour.port_name, "containerPort": flavour.port}
                container["ports"] = [*ports, added]
        return {
            **group,
            "replicas": group.get("replicas", 1),
            "restartPolicy": group.get("restartPolicy") or flavour.policy,
        }

    def count(self, role: str) -> int:
        return int(self.roles[role]["replicas"])

    def restart_policy(self, role: str) -> str:
        return str(self.roles[role]["restartPolicy"])

    def role_labels(self, role: str) -> dict[str, str]:
        return {**self.labels, f"{PREFIX}/replica-type": role.lower()}

    def pod_name(self, role: str, index: int) -> str:
        return f"{self.name}-{role.lower()}-{index}"

    # ---- manifests

    def pod(self, role: str, index: int) -> Object:
        template = copy.deepcopy(self.roles[role]["template"])
        given, spec = template.get("metadata") or {}, template["spec"]
        labels = {
            **(given.get("labels") or {}),
            **self.role_labels(role),
            f"{PREFIX}/replica-index": str(index),
        }
        if role in self.leaders or (not self.leaders and (role, index) == ("Worker", 0)):
            labels[f"{PREFIX}/job-role"] = "master"
        metadata = {"name": self.pod_name(role, index), "labels": labels}
        if given.get("annotations"):
            metadata["annotations"] = given["annotations"]
        policy = self.restart_policy(role)
        spec["restartPolicy"] = "Never" if policy == "ExitCode" else policy
        if self.kind is PYTORCH_JOB:
            self._prepare_torch(role, index, spec)
        else:
            self._prepare_tensorflow(role, index, spec)
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def service(self, role: str, index: int) -> Object:
        labels = {**self.role_labels(role), f"{PREFIX}/replica-index": str(index)}
        ports = [
            {"name": port["name"], "port": port["containerPort"]}
            for port in self._ports(role)
            if port.get("name")
        ]
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": self.pod_name(role, index), "labels": labels},
            "spec": {"clusterIP": "None", "selector": labels, "ports": ports},
        }

    def _ports(self, role: str) -> list[Object]:
        containers = self.roles[role]["template"]["spec"]["containers"]
        named = [each for each in containers if each["name"] == self.kind.container]
        return list(named[0]["ports"]) if named else []

    def _port(self, role: str) -> int:
        ports = {port.get("name"): int(port["containerPort"]) for port in self._ports(role)}
        return ports[self._flavour.port_name]

    # ---- PyTorch

    def _prepare_torch(self, role: str, index: int, spec: Object) -> None:
        variables = [
            {"name": name, "value": value} for name, value in self._torch_variables(role, index)
        ]
        for container in spec["containers"]:
            container["env"] = [*(container.get("env") or ()), *variables]
        if role == "Worker" and self.leaders:
            # On a real cluster it waits until the name of the master resolves; here that is not
            # needed.
            init = {"name": "init-pytorch", "image": "alpine:3.10", "command": ["true"]}
            spec.setdefault("initContainers", []).append(init)

    def _torch_variables(self, role: str, index: int) -> Variables:
        yield "PYTHONUNBUFFERED", "1"
        elastic = self.spec.get("elasticPolicy")
        total = sum(map(self.count, self.roles))
        processes: str | None = self.spec.get("nprocPerNode")
        if self.leaders:
            port, address = str(self._port("Master")), self.pod_name("Master", 0)
            rank = str(index + (role == "Worker"))
            a_node = int(processes) if processes and processes.isdigit() else 1
            yield from (("MASTER_PORT", port), ("PET_MASTER_PORT", port))
            yield from (("MASTER_ADDR", address), ("PET_MASTER_ADDR", address))
            yield "WORLD_SIZE", str(total * a_node)
            yield from (("RANK", rank), ("PET_NODE_RANK", rank))
        if processes is None and (elastic or {}).get("nProcPerNode") is None:
            processes = "auto"
        if processes is not None:
            yield "PET_NPROC_PER_NODE", processes
        if elastic is None:
            yield "PET_NNODES", str(total)
        else:
            yield from self._elastic_variables(elastic)

    def _elastic_variables(self, elastic: Object) -> Variables:
        given = {key: value for key, value in elastic.items() if value is not None}
        host = given.get("rdzvHost", self.pod_name("Worker", 0))
        yield "PET_RDZV_ENDPOINT", f"{host}:{given.get('rdzvPort') or self._port('Worker')}"
        yield "PET_RDZV_BACKEND", given.get("rdzvBackend", "c10d")
        bounds = [given[key] for key in ("minReplicas", "maxReplicas") if key in given]
        bounds = bounds or [self.count("Worker")]
        yield "PET_NNODES", f"{bounds[0]}:{bounds[-1]}"
        for key, name in (
            ("maxRestarts", "PET_MAX_RESTARTS"),
            ("nProcPerNode", "PET_NPROC_PER_NODE"),
            ("rdzvId", "PET_RDZV_ID"),
        ):
            if key in given:
                yield name, str(given[key])
        if "rdzvConf" in given:
            pairs = [f"{each['key']}={each['value']}" for each in given["rdzvConf"]]
            yield "PET_RDZV_CONF", ",".join(pairs)
        if given.get("standalone"):
            yield "PET_STANDALONE", ""

    # ---- TensorFlow

    def _prepare_tensorflow(self, role: str, index: int, spec: Object) -> None:
        if sum(self.count(each) for each in self.roles if each in self.kind.roles) == 1:
            return  # a single process needs no cluster
        config = json.dumps(self._tf_config(role, index), separators=(",", ":"))
        for container in spec["containers"]:
            if container["name"] == self.kind.container:
                variable = {"name": "TF_CONFIG", "value": config}
                container["env"] = [*(container.get("env") or ()), variable]

    def _tf_config(self, role: str, index: int) -> Object:
        cluster: dict[str, Any] = {
            each.lower(): [
                f"{self.pod_name(each, n)}.{self.namespace}.svc:{self._port(each)}"
                for n in range(self.count(each))
            ]
            for each in sorted(self.roles)
        }
        task = {"type": role.lower(), "index": index}
        if not self.spec.get("enableDynamicWorker"):
            return {"cluster": cluster, "task": task, "environment": "cloud"}
        sparse: dict[str, Any] = {"worker": {}, "ps": []}
        if role == "Worker":
            own = {str(index): cluster["worker"][index]}
            sparse = {"worker": own, "ps": cluster.get("ps")}
        elif role == "PS":
            sparse["ps"] = [cluster["ps"][index]]
        return {"cluster": sparse, "task": task}


def _has_port(ports: list[Object], flavour: _Flavour) -> bool:
    return any(port.get("name") == flavour.port_name for port in ports)
