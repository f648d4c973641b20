"""Names and ports of a job's pods, on a machine where all pods share one address.

Pods find each other by names that do not resolve here, and all jobs use the same ports. So each
(scope, host name of a peer, port) gets a port of this machine when it is first mentioned, and
variables and arguments are rewritten to it. The scope is the job. The ports are below the range
from which systems allocate ports.
"""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Callable, Iterable, Mapping

from kftrain_local.agent.environment import ADDRESS, CannotStart
from kftrain_local.api_client import Object

FIRST_PORT, LAST_PORT = 20000, 29999
_BLOCK = 100
_LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"
_JOB_LABELS = (
    "training.kubeflow.org/job-name",
    "jobset.sigs.k8s.io/jobset-name",
    "batch.kubernetes.io/job-name",
)
_PAIRS = {
    "MASTER_ADDR": "MASTER_PORT",
    "PET_MASTER_ADDR": "PET_MASTER_PORT",
    "COORDINATOR_ADDRESS": "COORDINATOR_PORT",
    "DMLC_TRACKER_URI": "DMLC_TRACKER_PORT",
    "DMLC_PS_ROOT_URI": "DMLC_PS_ROOT_PORT",
}
DEFAULTS = {"PET_LOCAL_ADDR": ADDRESS, "GLOO_SOCKET_IFNAME": _LOOPBACK}
"""Variables that keep the traffic of frameworks on this machine. The author's own values win."""
# For OpenMPI, several pods on one machine are several machines. Its shared memory and its binding
# to cores fail then (3 of 3 simultaneous jobs failed); sockets over loopback work.
_OPEN_MPI = {
    "OMPI_MCA_btl": "self,tcp",
    "OMPI_MCA_rtc": "^hwloc",
    "OMPI_MCA_btl_tcp_if_include": _LOOPBACK,
    "OMPI_MCA_oob_tcp_if_include": _LOOPBACK,
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
}
HOSTS_OF_MPI = "OMPI_MCA_orte_default_hostfile"
_REMOTE_SHELLS = {
    HOSTS_OF_MPI: ("OMPI_MCA_plm_rsh_agent", "PRTE_MCA_plm_ssh_agent"),
    "I_MPI_HYDRA_HOST_FILE": ("I_MPI_HYDRA_BOOTSTRAP_EXEC",),
    "I_MPI_HYDRA_BOOTSTRAP_EXEC": ("I_MPI_HYDRA_BOOTSTRAP_EXEC",),
    "HYDRA_HOST_FILE": ("HYDRA_LAUNCHER_EXEC",),
}
"""Variables by which an operator says that MPI starts the ranks, and those that say how."""


class Ports:
    """Ports of this machine for the pods of one agent.

    They come in blocks. An agent owns a block while it listens on the first port. So the system
    keeps agents apart, and releases a block when its agent ends for any reason.
    """

    def __init__(self) -> None:
        self._blocks: dict[int, socket.socket] = {}
        self._given: dict[str, dict[tuple[str, int], int]] = {}

    def port(self, scope: str, host: str, port: int) -> int:
        """Returns the same port for the same arguments until the scope is released. Raises
        CannotStart."""
        given = self._given.setdefault(scope, {})
        if (host, port) not in given:
            given[host, port] = self._take()
        return given[host, port]

    def release(self, scope: str) -> None:
        self._given.pop(scope, None)

    def close(self) -> None:
        for holder in self._blocks.values():
            holder.close()

    def _take(self) -> int:
        taken = {port for given in self._given.values() for port in given.values()}
        for block in range(FIRST_PORT, LAST_PORT, _BLOCK):
            if block not in self._blocks and (holder := _listen(ADDRESS, block)):
                self._blocks[block] = holder
            if block in self._blocks:
                for port in range(block + 1, block + _BLOCK):
                    if port not in taken and (probe := _listen("", port)):
                        probe.close()
                        return port
        raise CannotStart(f"no free port between {FIRST_PORT} and {LAST_PORT}")


def _listen(host: str, port: int) -> socket.socket | None:
    try:
        return socket.create_server((host, port))
    except OSError:
        return None  # another process does


def scope_of(pod: Object) -> str:
    """What shares names: the job, or the namespace for pods without a job."""
    metadata = pod["metadata"]
    # The pods of a JobSet belong to several Jobs.
    if jobset := (metadata.get("labels") or {}).get("jobset.sigs.k8s.io/jobset-uid"):
        return str(jobset)
    for owner in metadata.get("ownerReferences") or []:
        if owner.get("controller"):
            return str(owner["uid"])
    return str(metadata["namespace"])


class Peers:
    """Recognises the other pods of a pod's job by their host names, and knows their ports."""

    def __init__(self, pod: Object, port: Callable[[str, int], int]) -> None:
        metadata, spec = pod["metadata"], pod["spec"]
        labels = metadata.get("labels") or {}
        services = {labels[label] for label in _JOB_LABELS if label in labels}
        services |= {spec["subdomain"]} if spec.get("subdomain") else set()
        self._own = spec.get("hostname") or metadata["name"]
        self._port = port
        host, service = _any_of({self._own, metadata["name"]}), ""
        if services:
            # The names of pods begin with that of their job, and a name below its service is that
            # of a pod.
            host += rf"|(?:{_any_of(services)})(?:-[a-z0-9]+)*-[0-9]+"
            host += rf"|[a-z0-9-]+(?=\.(?:{_any_of(services)})(?![\w-]))"
            service = rf"(?:\.(?:{_any_of(services)}))?"
        namespace = re.escape(metadata["namespace"])
        domain = rf"{service}(?:\.{namespace}(?:\.svc(?:\.[a-z0-9.-]+)?)?)?"
        self._host = re.compile(rf"(?P<host>{host}){domain}")
        self._host_port = re.compile(
            rf"(?<![\w.-]){self._host.pattern}:(?P<port>[0-9]{{1,5}})(?![0-9])"
        )

    def rewrite(self, text: str) -> str:
        """Rewrites every `<peer>:<port>` in a text."""
        return self._host_port.sub(
            lambda match: f"{ADDRESS}:{self._port(match['host'], int(match['port']))}", text
        )

    def rewrite_variables(self, given: Mapping[str, str]) -> dict[str, str]:
        values = {name: self.rewrite(value) for name, value in given.items()}
        for name, port_name in _PAIRS.items():
            host = self._host.fullmatch(given.get(name, ""))
            port = given.get(port_name, "")
            if host and port.isdigit():
                values[name] = ADDRESS
                values[port_name] = str(self._port(host["host"], int(port)))
        self._rewrite_own_port(values)
        return values

    def _rewrite_own_port(self, values: dict[str, str]) -> None:
        """Rewrites the variables that hold the port that the pod itself opens."""
        host, _, port = values.get("PADDLE_MASTER", "").partition(":")
        if host == ADDRESS and port.isdigit() and not FIRST_PORT <= int(port) <= LAST_PORT:
            values["PADDLE_MASTER"] = f"{ADDRESS}:{self._port(self._own, int(port))}"
        hosts, port = values.get("WORKER_ADDRS", "").split(","), values.get("WORKER_PORT", "")
        if port.isdigit() and all(map(self._host.fullmatch, hosts)):
            values["WORKER_ADDRS"] = ",".join([ADDRESS] * len(hosts))
            values["WORKER_PORT"] = str(self._port(self._own, int(port)))


def _any_of(names: Iterable[str]) -> str:
    # The longest first: one name may be the beginning of another.
    return "|".join(map(re.escape, sorted(names, key=len, reverse=True)))


def mpi_variables(
    values: Mapping[str, str], remote_shell: str, takes_ranks: bool
) -> dict[str, str]:
    """The variables with which MPI starts ranks in pods of this machine; empty if MPI is not
    used."""
    signs = _REMOTE_SHELLS.keys() & values.keys()
    shells = {name: remote_shell for sign in signs for name in _REMOTE_SHELLS[sign]}
    if not shells and not takes_ranks:
        return {}
    defaults = dict(_OPEN_MPI)
    if hosts := values.get(HOSTS_OF_MPI):
        defaults["PRTE_MCA_prte_default_hostfile"] = hosts
    return {**{k: v for k, v in defaults.items() if k not in values}, **shells}
