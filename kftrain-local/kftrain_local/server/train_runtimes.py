"""Runtimes of Kubeflow Trainer 2.3: those that come with it, and what a TrainJob makes of one.

Pure.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from math import ceil
from typing import Any

from kftrain_local.agent.environment import quantity
from kftrain_local.server.patches import merge

Object = dict[str, Any]

STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
"""The label that says which part of a TrainJob a step of a runtime is."""

_PORT = 29500
_INDEX = {
    "apiVersion": "v1",
    "fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']",
}
_IMAGES = {
    "torch": "pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime",
    "jax": "nvcr.io/nvidia/jax:25.10-py3",
    "xgboost": "ghcr.io/kubeflow/trainer/xgboost-runtime",
}
_MPI = {"sshAuthMountPath": "/home/mpiuser/.ssh", "runLauncherAsNode": True}
_SSHD = {"command": ["/usr/sbin/sshd"], "args": ["-De", "-f", "/home/mpiuser/.sshd_config"]}
_KEYS = (
    {"key": "ssh-privatekey", "path": "id_rsa", "mode": 0o640},
    {"key": "ssh-publickey", "path": "id_rsa.pub", "mode": 0o644},
    {"key": "ssh-publickey", "path": "authorized_keys", "mode": 0o644},
)


# ----- those that come with the Trainer


def preinstalled() -> Iterator[Object]:
    for framework, image in _IMAGES.items():
        yield _runtime(framework, {framework: {}}, {"replicatedJobs": [_step("node", image)]})
    for framework in ("deepspeed", "mlx"):
        image = f"ghcr.io/kubeflow/trainer/{framework}-runtime"
        nodes = _step("node", image, "", securityContext={"runAsUser": 1000}, **_SSHD)
        launcher = _step("launcher", image, securityContext={"runAsUser": 1000})
        launcher["dependsOn"] = [{"name": "node", "status": "Ready"}]
        decides = {"operator": "All", "targetReplicatedJobs": ["launcher"]}
        spec = {"successPolicy": decides, "replicatedJobs": [nodes, launcher]}
        yield _runtime(framework, {"mpi": _MPI}, spec)


def _runtime(framework: str, policy: Object, job_set: Object) -> Object:
    labels = {"trainer.kubeflow.org/framework": framework}
    return {
        "metadata": {"name": f"{framework}-distributed", "labels": labels},
        "spec": {"mlPolicy": {"numNodes": 1, **policy}, "template": {"spec": job_set}},
    }


def _step(name: str, image: str, part: str = "trainer", **container: Any) -> Object:
    pod = {"containers": [{"name": "node", "image": image, **container}]}
    labels = {"metadata": {"labels": {STEP: part}}} if part else {}
    return {"name": name, "template": {**labels, "spec": {"template": {"spec": pod}}}}


# ----- the objects of a TrainJob


def patched(job: Object, runtime: Object) -> Object:
    """The template of the runtime with the changes of the job."""
    template = runtime["spec"]["template"]
    for patch in job["spec"].get("runtimePatches") or ():
        changes = (patch.get("trainingRuntimeSpec") or {}).get("template") or {}
        template = merge(template, changes, lists_by_name=True)
    return copy.deepcopy(dict(template))


def steps_of(template: Object) -> list[Object]:
    return list(template["spec"].get("replicatedJobs") or ())


def pod_of(step: Object) -> Object:
    """The pod spec of a step. A patch may have added a step without one."""
    spec: Object = step.setdefault("template", {}).setdefault("spec", {})
    return dict(spec.setdefault("template", {}).setdefault("spec", {}))


class Plan:
    """The objects of a TrainJob on a runtime."""

    def __init__(self, job: Object, runtime: Object) -> None:
        self._spec = job["spec"]
        self._name: str = job["metadata"]["name"]
        self._policy = runtime["spec"].get("mlPolicy") or {}
        self._mpi: Object | None = self._policy.get("mpi")
        self._template = patched(job, runtime)
        self._trainer: Object | None = self._spec.get("trainer")

    def job_set(self) -> Object:
        steps = steps_of(self._template)
        for step in steps:
            count = self._count(step)
            pod_of(step)
            step["template"]["spec"] |= {"parallelism": count, "completions": count}
            self._fill(step)
        metadata = self._template.get("metadata") or {}
        kept = {key: metadata[key] for key in ("labels", "annotations") if metadata.get(key)}
        suspend = bool(self._spec.get("suspend"))
        return {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": self._name, **kept},
            "spec": {**self._template["spec"], "replicatedJobs": steps, "suspend": suspend},
        }

    def of_mpi(self) -> Iterator[tuple[str, Object]]:
        """Further objects, by the plurals of their kinds."""
        if self._mpi is None:
            return
        hosts = [
            f"{self._name}-{step['name']}-0-{index}.{self._name} slots={self._processes()}\n"
            for step in steps_of(self._template)
            if step["name"] == "node" or step["name"] == "launcher" and self._launcher_is_node()
            for index in range(self._count(step))
        ]
        name = f"{self._name}-mpi-hostfile"
        yield "configmaps", {"metadata": {"name": name}, "data": {"hostfile": "".join(hosts)}}
        # Nobody logs in here: ranks are started without ssh.
        keys = dict.fromkeys(("ssh-privatekey", "ssh-publickey"), "")
        secret = {"type": "kubernetes.io/ssh-auth", "immutable": True, "data": keys}
        yield "secrets", {"metadata": {"name": f"{self._name}-mpi-ssh-auth"}, **secret}

    # ---- numbers

    def _count(self, step: Object) -> int:
        """The number of pods of a step."""
        asked = (self._trainer or {}).get("numNodes")
        if self._mpi is not None and step["name"] == "node" and asked is not None:
            return max(asked - 1, 1) if self._launcher_is_node() else int(asked)
        if _part(step) != "trainer" or not self._policy:
            return int(step["template"].get("spec", {}).get("parallelism", 1))
        if asked is None or self._mpi is not None:
            asked = self._policy.get("numNodes", 1)
        return int(asked)

    def _launcher_is_node(self) -> bool:
        return bool((self._mpi or {}).get("runLauncherAsNode"))

    def _processes(self, resources: Object | None = None) -> str:
        """Per node."""
        asked = (self._trainer or {}).get("numProcPerNode")
        if asked is None and self._mpi is not None:
            asked = self._mpi.get("numProcPerNode", 1)
        if asked is not None:
            return str(asked)
        limits, requests = ((resources or {}).get(key) or {} for key in ("limits", "requests"))
        if _gpus(resources):
            return "auto"
        return str(max(1, ceil(quantity(requests.get("cpu") or limits.get("cpu") or 0))))

    # ---- variables of containers

    def _fill(self, step: Object) -> None:
        part, name = _part(step), step["name"]
        takes_ranks = self._launcher_is_node() and name == "node"
        pod = step["template"]["spec"]["template"]["spec"]
        for container in pod.get("containers") or ():
            if part == container["name"] and part.endswith("-initializer"):
                self._fill_initializer(container, part.removesuffix("-initializer"))
            if container["name"] != "node":
                continue
            if self._mpi is not None and name in ("node", "launcher"):
                self._mount(pod, container, is_launcher=name == "launcher")
            if self._trainer is not None and (part == "trainer" or takes_ranks):
                self._fill_node(container, step, is_trainer=part == "trainer")

    def _fill_initializer(self, container: Object, what: str) -> None:
        asked = (self._spec.get("initializer") or {}).get(what) or {}
        if uri := asked.get("storageUri"):
            _put_env(container, {"name": "STORAGE_URI", "value": uri})
        _put_env(container, *(asked.get("env") or ()))
        if secret := asked.get("secretRef"):
            container.setdefault("envFrom", []).append({"secretRef": secret})

    def _fill_node(self, container: Object, step: Object, *, is_trainer: bool) -> None:
        trainer = self._trainer or {}
        resources = container.setdefault("resources", {})
        for key, amounts in (trainer.get("resourcesPerNode") or {}).items():
            resources[key] = {**(resources.get(key) or {}), **(amounts or {})}
        env = [*(trainer.get("env") or ())]
        if is_trainer:
            fields = ("image", "command", "args")
            container |= {key: trainer[key] for key in fields if trainer.get(key) is not None}
            variables = [*self._variables(self._count(step), resources)]
            env = [*env, *variables] if "torch" in self._policy else [*variables, *env]
            if self._policy.keys() & _IMAGES.keys():
                container.setdefault("ports", []).append({"containerPort": _PORT})
        _put_env(container, *env)

    def _variables(self, nodes: int, resources: Object) -> Iterator[Object]:
        first, policy = f"{self._name}-node-0-0.{self._name}", self._policy
        rank = {"valueFrom": {"fieldRef": _INDEX}}
        if "torch" in policy:
            yield {"name": "PET_NNODES", "value": str(nodes)}
            yield {"name": "PET_NPROC_PER_NODE", "value": self._processes(resources)}
            yield {"name": "PET_NODE_RANK", **rank}
            yield {"name": "PET_MASTER_ADDR", "value": first}
            yield {"name": "PET_MASTER_PORT", "value": str(_PORT)}
        elif "jax" in policy:
            yield {"name": "JAX_NUM_PROCESSES", "value": str(nodes)}
            yield {"name": "JAX_PROCESS_ID", **rank}
            yield {"name": "JAX_COORDINATOR_ADDRESS", "value": f"{first}:{_PORT}"}
        elif "xgboost" in policy:
            yield {"name": "DMLC_TRACKER_URI", "value": first}
            yield {"name": "DMLC_TRACKER_PORT", "value": str(_PORT)}
            yield {"name": "DMLC_TASK_ID", **rank}
            yield {"name": "DMLC_NUM_WORKER", "value": str(nodes * max(1, _gpus(resources)))}

    def _mount(self, pod: Object, container: Object, *, is_launcher: bool) -> None:
        path = (self._mpi or {}).get("sshAuthMountPath", "/root/.ssh")
        secret = {"secretName": f"{self._name}-mpi-ssh-auth", "items": [*_KEYS]}
        volumes = [{"name": "mpi-ssh-auth", "secret": {**secret, "defaultMode": 0o400}}]
        mounts = [{"name": "mpi-ssh-auth", "mountPath": path}]
        if is_launcher:
            items = [{"key": "hostfile", "path": "hostfile", "mode": 0o444}]
            hosts = {"name": f"{self._name}-mpi-hostfile", "items": items}
            volumes.append({"name": "mpi-hostfile", "configMap": hosts})
            mounts.append({"name": "mpi-hostfile", "mountPath": "/etc/mpi"})
            values = {
                "orte_default_hostfile": "/etc/mpi/hostfile",
                "orte_keep_fqdn_hostnames": "true",
                "orte_set_default_slots": self._processes(),
                "plm_rsh_args": "-o ConnectionAttempts=10",
            }
            env = ({"name": f"OMPI_MCA_{key}", "value": text} for key, text in values.items())
            _put_env(container, *env)
        pod.setdefault("volumes", []).extend(volumes)
        container.setdefault("volumeMounts", []).extend(mounts)


def _part(step: Object) -> str:
    labels = (step["template"].get("metadata") or {}).get("labels") or {}
    return str(labels.get(STEP, ""))


def _gpus(resources: Object | None) -> int:
    for key in ("requests", "limits"):
        for name, amount in ((resources or {}).get(key) or {}).items():
            if "gpu" in name.lower():
                return int(quantity(amount))
    return 0


def _put_env(container: Object, *variables: Object) -> None:
    """A later variable replaces an earlier one of the same name."""
    known = {each["name"]: each for each in (*(container.get("env") or ()), *variables)}
    if known:
        container["env"] = [*known.values()]
