"""What mpi-operator creates for an MPIJob v2beta1, and what it rejects. Pure."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator
from typing import Any

from kftrain_local.server.refusals import DNS_1035, unsupported_value

Object = dict[str, Any]

_LABELS = "training.kubeflow.org"
LAUNCHER, WORKER = "Launcher", "Worker"
_ROLE_DEFAULTS: dict[str, Object] = {
    LAUNCHER: {"replicas": 1, "restartPolicy": "OnFailure"},
    WORKER: {"replicas": 0, "restartPolicy": "Never"},
}
_LIMITS = ("ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit")
_FILES = "/etc/mpi"
_HOSTFILE = f"{_FILES}/hostfile"
_PATIENCE = "-o ConnectionAttempts=10"
_VARIABLES: dict[str, dict[str, str]] = {
    "OpenMPI": {
        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        "OMPI_MCA_orte_default_hostfile": _HOSTFILE,
        "OMPI_MCA_plm_rsh_args": _PATIENCE,
        "OMPI_MCA_orte_set_default_slots": "{slots}",
    },
    "Intel": {
        "I_MPI_HYDRA_HOST_FILE": _HOSTFILE,
        "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS": _PATIENCE,
        "I_MPI_PERHOST": "{slots}",
    },
    "MPICH": {"HYDRA_HOST_FILE": _HOSTFILE, "HYDRA_LAUNCH_EXTRA_ARGS": _PATIENCE},
}
_NO_DEVICES = {"NVIDIA_VISIBLE_DEVICES": "", "NVIDIA_DRIVER_CAPABILITIES": ""}
# Nobody logs in with these keys: remote_shell.py replaces ssh.
_KEYS = {
    "ssh-privatekey": "-----BEGIN EC PRIVATE KEY-----\n-----END EC PRIVATE KEY-----\n",
    "ssh-publickey": "ecdsa-sha2-nistp521\n",
}


class MpiObjects:
    """The objects of one job. They have no owner yet."""

    def __init__(self, job: Object) -> None:
        self.name: str = job["metadata"]["name"]
        self.launcher_name = f"{self.name}-launcher"
        self._namespace: str = job["metadata"]["namespace"]
        self._spec: Object = job["spec"]
        self.policy: Object = self._spec.get("runPolicy") or {}
        # The operator does not write its defaults back.
        self._roles = {
            role: _ROLE_DEFAULTS[role] | {k: v for k, v in given.items() if v not in ("", None)}
            for role, given in self._spec["mpiReplicaSpecs"].items()
            if role in _ROLE_DEFAULTS
        }
        count = self._roles[WORKER]["replicas"] if WORKER in self._roles else 0
        self.workers = [f"{self.name}-worker-{index}" for index in range(count)]
        self._launcher_works: bool = self._spec["runLauncherAsWorker"]

    def labels(self, role: str) -> dict[str, str]:
        return {**self._labels, f"{_LABELS}/job-role": role.lower()}

    @property
    def _labels(self) -> dict[str, str]:
        return {f"{_LABELS}/job-name": self.name, f"{_LABELS}/operator-name": "mpi-operator"}

    @property
    def sets_restart_policy_twice(self) -> bool:
        return bool(self._roles[LAUNCHER]["template"]["spec"].get("restartPolicy"))

    # ---- beside the pods

    def service(self) -> Object:
        spec: Object = {"clusterIP": "None", "selector": self._labels}
        if self._launcher_works:
            spec["publishNotReadyAddresses"] = True
        return self._object("Service", self.name, spec=spec)

    def config_map(self, running: Iterable[str]) -> Object:
        """With the names of the running workers."""
        is_open_mpi = self._spec["mpiImplementation"] == "OpenMPI"
        slots = f"{' slots=' if is_open_mpi else ':'}{self._spec['slotsPerWorker']}"
        hosts = "".join(f"{host}{slots}\n" for host in self._hosts(self.workers))
        script = "".join(f"echo {host}\n" for host in self._hosts(running))
        data = {"hostfile": hosts, "discover_hosts.sh": f"#!/bin/sh\n{script}"}
        return self._object("ConfigMap", f"{self.name}-config", data=data)

    def _hosts(self, workers: Iterable[str]) -> Iterator[str]:
        for name in (*([self.launcher_name] if self._launcher_works else ()), *workers):
            yield f"{name}.{self.name}.{self._namespace}.svc"

    def secret(self) -> Object:
        kind = "kubernetes.io/ssh-auth"
        return self._object("Secret", f"{self.name}-ssh", type=kind, stringData=_KEYS)

    def _object(self, kind: str, name: str, api_version: str = "v1", **fields: Any) -> Object:
        metadata = {"name": name, "labels": {"app": self.name}}
        return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}

    # ---- pods

    def launcher(self) -> Object:
        """The Job that creates the launcher's pod."""
        variables = {"K_MPI_JOB_ROLE": "launcher", **_VARIABLES[self._spec["mpiImplementation"]]}
        if not self._launcher_works:
            variables |= _NO_DEVICES
        template = self._template(LAUNCHER, self.launcher_name, variables)
        if self._launcher_works:
            template["metadata"]["labels"][f"{_LABELS}/replica-index"] = "0"
        modes = {"hostfile": 0o444, "discover_hosts.sh": 0o555}
        items = [{"key": key, "path": key, "mode": mode} for key, mode in modes.items()]
        files = {"configMap": {"name": f"{self.name}-config", "items": items}}
        _mount(template["spec"], "mpi-job-config", files, _FILES)
        spec = {key: self.policy[key] for key in _LIMITS if self.policy.get(key) is not None}
        spec |= {"template": template, "podReplacementPolicy": "Failed"}
        if self.policy.get("suspend"):
            spec["suspend"] = True
        return self._object("Job", self.launcher_name, "batch/v1", spec=spec)

    def worker(self, name: str) -> Object:
        pod = self._template(WORKER, name, {"K_MPI_JOB_ROLE": "worker"})
        # A launcher that is also a worker has number 0.
        number = self.workers.index(name) + self._launcher_works
        pod["metadata"]["labels"][f"{_LABELS}/replica-index"] = str(number)
        pod["metadata"]["name"] = name
        dns = pod["spec"].setdefault("dnsConfig", {})
        search = f"{self.name}.{self._namespace}.svc.cluster.local"
        dns["searches"] = [*(dns.get("searches") or ()), search]
        main = pod["spec"]["containers"][0]
        if not main.get("command") and not main.get("args"):
            main["command"] = ["/usr/sbin/sshd", "-De"]
        return {"apiVersion": "v1", "kind": "Pod", **pod}

    def _template(self, role: str, host: str, variables: dict[str, str]) -> Object:
        """The author's template, with what launcher and workers have in common."""
        given = copy.deepcopy(self._roles[role]["template"])
        metadata, spec = given.get("metadata") or {}, given["spec"]
        kept = {"labels": {**(metadata.get("labels") or {}), **self.labels(role)}}
        if metadata.get("annotations"):
            kept["annotations"] = metadata["annotations"]
        policy = self._roles[role]["restartPolicy"]
        spec |= {"hostname": host, "subdomain": self.name, "restartPolicy": policy}
        main, slots = spec["containers"][0], self._spec["slotsPerWorker"]
        added = [
            {"name": key, "value": text.format(slots=slots)} for key, text in variables.items()
        ]
        main["env"] = [*(main.get("env") or ()), *added]
        place = self._spec["sshAuthMountPath"]
        paths = {"id_rsa": "privatekey", "id_rsa.pub": "publickey", "authorized_keys": "publickey"}
        items = [{"key": f"ssh-{key}", "path": path} for path, key in paths.items()]
        keys: Object = {"secretName": f"{self.name}-ssh", "items": items}
        if place == "/root/.ssh":
            keys["defaultMode"] = 0o600
        _mount(spec, "ssh-auth", {"secret": keys}, place)
        return {"metadata": kept, "spec": spec}

    # ---- rejections

    def faults(self) -> Iterator[str]:
        """In the operator's words and order."""
        longest = f"{self.name}-worker-{max(len(self.workers), 1) - 1}"
        start = "will not able to create pod and service with invalid DNS label"
        start = f'metadata.name: Invalid value: "{self.name}": {start} "{longest}"'
        if len(longest) > 63:
            yield f"{start}: must be no more than 63 characters"
        if not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", longest):
            yield f"{start}: {DNS_1035}"
        path = f"spec.mpiReplicaSpecs[{LAUNCHER}]"
        if LAUNCHER not in self._roles:
            yield f"{path}: Required value: must have {LAUNCHER} replica spec"
        for role, given in sorted(self._roles.items()):
            yield from _role_faults(role, given, f"spec.mpiReplicaSpecs[{role}]")
        yield from _negative("spec.slotsPerWorker", self._spec["slotsPerWorker"])
        policies = ("All", "None", "Running")
        if (policy := self.policy.get("cleanPodPolicy") or "None") not in policies:
            yield unsupported_value("spec.runPolicy.cleanPodPolicy", policy, policies)
        for key in _LIMITS:
            yield from _negative(f"spec.runPolicy.{key}", self.policy.get(key) or 0)


def _role_faults(role: str, given: Object, path: str) -> Iterator[str]:
    count, policy = given["replicas"], given["restartPolicy"]
    if policy not in ("Never", "OnFailure"):
        yield unsupported_value(f"{path}.restartPolicy", policy, ("Never", "OnFailure"))
    if not given["template"]["spec"].get("containers"):
        place = f"{path}.template.spec.containers"
        yield f"{place}: Required value: must define at least one container"
    if role == LAUNCHER and count != 1:
        yield f"{path}.replicas: Invalid value: {count}: must be 1"
    if role == WORKER and count <= 0:
        yield f"{path}.replicas: Invalid value: {count}: must be greater than or equal to 1"


def _negative(field: str, value: int) -> Iterator[str]:
    if value < 0:
        yield f"{field}: Invalid value: {value}: must be greater than or equal to 0"


def _mount(spec: Object, name: str, source: Object, path: str) -> None:
    """Into the first container, which is the main one whatever its name."""
    main = spec["containers"][0]
    spec["volumes"] = [*(spec.get("volumes") or ()), {"name": name, **source}]
    mount = {"name": name, "mountPath": path}
    main["volumeMounts"] = [*(main.get("volumeMounts") or ()), mount]
