"""The parts of the control plane: how each is started, and how to see that it is ready."""

from __future__ import annotations

import shutil
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.control_plane.certificates import LOOPBACK, write_certificates

# Constants of training-operator and mpi-operator. Because of them there is one control plane per
# machine.
TRAINING_OPERATOR_CERTIFICATES = Path("/tmp/k8s-webhook-server/serving-certs")
MPI_OPERATOR_HEALTH_PORT = 8080

# The operators' own limits (20 calls per second, mpi-operator 5) would slow everything down.
_CALLS_A_SECOND, _BURST = 200, 400

# Without nodelifecycle nothing removes the taint not-ready from a node, so nothing may add it
# either. The test nodes keep no Lease that nodelifecycle could watch.
_ADMISSION_OFF = "ServiceAccount,TaintNodesByCondition"
# Pods have the address 127.0.0.1 here, which endpoints must not have: it would log errors all the
# time.
_CONTROLLERS = (
    "*,-nodeipam,-nodelifecycle"
    ",-endpoints-controller,-endpointslice-controller,-endpointslice-mirroring-controller"
)

# The kinds of training-operator that remain if mpi-operator serves MPIJob.
_WITHOUT_MPI = ("pytorchjob", "tfjob", "xgboostjob", "paddlejob", "jaxjob")

# What Kueue queues: all kinds of job that are served next to it.
_QUEUED = (
    "batch/job",
    "jobset.x-k8s.io/jobset",
    "kubeflow.org/jaxjob",
    "kubeflow.org/mpijob",
    "kubeflow.org/paddlejob",
    "kubeflow.org/pytorchjob",
    "kubeflow.org/tfjob",
    "kubeflow.org/xgboostjob",
    "trainer.kubeflow.org/trainjob",
)

# Instead of one that asks DNS for the master, for 200 seconds.
_INIT_PYTORCH = """\
- name: init-pytorch
  image: "{{.InitContainerImage}}"
  command: ["true"]
"""


class Ports(NamedTuple):
    etcd: int
    etcd_peer: int
    apiserver: int
    controller_manager: int
    scheduler: int
    training_operator: int
    training_operator_health: int
    jobset: int
    jobset_health: int
    trainer: int
    trainer_health: int
    kueue: int
    kueue_health: int


def free_ports(apiserver: int | None) -> Ports:
    """All are reserved before any is released, so that no two are the same."""
    sockets = [socket.socket() for _ in Ports._fields]
    try:
        for one in sockets:
            one.bind((LOOPBACK, 0))
        ports = Ports(*(one.getsockname()[1] for one in sockets))
    finally:
        for one in sockets:
            one.close()
    return ports if apiserver is None else ports._replace(apiserver=apiserver)


def port_is_free(address: str, port: int) -> bool:
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # closed connections linger
        try:
            one.bind((address, port))
        except OSError:
            return False
    return True


class Layout:
    """The files in the state folder."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.logs = state / "logs"
        self.certificates = state / "certificates"
        self.service_account_key = state / "service-account.key"
        self.tokens = state / "tokens.csv"
        self.kubeconfig = state / "kubeconfig"

    @property
    def ca(self) -> Path:
        return self.certificates / "ca.crt"

    def temporary(self, part: str) -> Path:
        """The TMPDIR of a part: jobset and trainer look there for their certificates."""
        folder = self.state / part
        folder.mkdir(exist_ok=True)
        return folder


class Part(NamedTuple):
    name: str
    arguments: list[object]
    environment: dict[str, str]


def etcd(ports: Ports, layout: Layout) -> Part:
    clients, peers = f"http://{LOOPBACK}:{ports.etcd}", f"http://{LOOPBACK}:{ports.etcd_peer}"
    arguments: list[object] = [
        *("--data-dir", layout.state / "etcd"),
        *("--listen-client-urls", clients, "--advertise-client-urls", clients),
        *("--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers),
        *("--initial-cluster", f"default={peers}"),
        *("--unsafe-no-fsync", "--log-level", "warn"),
    ]
    return Part("etcd", arguments, {})


def apiserver(ports: Ports, layout: Layout) -> Part:
    key = layout.service_account_key
    arguments: list[object] = [
        *("--etcd-servers", f"http://{LOOPBACK}:{ports.etcd}"),
        *("--bind-address", LOOPBACK, "--secure-port", ports.apiserver),
        # Otherwise it looks for a default route, which a machine without a network does not have,
        # to advertise an address to pods, none of which needs it.
        *("--advertise-address", LOOPBACK, "--endpoint-reconciler-type", "none"),
        *_serving(layout),
        *("--service-account-key-file", key, "--service-account-signing-key-file", key),
        *("--service-account-issuer", "https://kubernetes.default.svc"),
        *("--service-cluster-ip-range", "10.96.0.0/16"),
        *("--authorization-mode", "Node,RBAC", "--token-auth-file", layout.tokens),
        *("--disable-admission-plugins", _ADMISSION_OFF),
        "--allow-privileged",
    ]
    return Part("kube-apiserver", arguments, {})


def controller_manager(ports: Ports, layout: Layout) -> Part:
    arguments: list[object] = [
        *("--kubeconfig", layout.kubeconfig, "--leader-elect=false"),
        *("--service-account-private-key-file", layout.service_account_key),
        *("--root-ca-file", layout.ca, "--use-service-account-credentials=true"),
        *("--controllers", _CONTROLLERS),
        *("--bind-address", LOOPBACK, "--secure-port", ports.controller_manager),
        *_serving(layout),
        *("--kube-api-qps", _CALLS_A_SECOND, "--kube-api-burst", _BURST),
    ]
    return Part("kube-controller-manager", arguments, {})


def scheduler(ports: Ports, layout: Layout) -> Part:
    arguments: list[object] = [
        *("--kubeconfig", layout.kubeconfig, "--leader-elect=false"),
        *("--bind-address", LOOPBACK, "--secure-port", ports.scheduler),
        *_serving(layout),
    ]
    return Part("kube-scheduler", arguments, {})


def _serving(layout: Layout) -> list[object]:
    folder = layout.certificates
    return ["--tls-cert-file", folder / "tls.crt", "--tls-private-key-file", folder / "tls.key"]


def training_operator(ports: Ports, layout: Layout, *, with_mpi: bool) -> Part:
    template = layout.state / "init-pytorch.yaml"
    template.write_text(_INIT_PYTORCH, encoding="utf-8")
    kinds = () if with_mpi else _WITHOUT_MPI
    arguments: list[object] = [
        *("--kubeconfig", layout.kubeconfig, "--metrics-bind-address", "0"),
        *("--health-probe-bind-address", f"{LOOPBACK}:{ports.training_operator_health}"),
        *("--webhook-server-port", ports.training_operator),
        *("--pytorch-init-container-template-file", template),
        *("--kube-api-qps", _CALLS_A_SECOND, "--kube-api-burst", _BURST),
        *(word for kind in kinds for word in ("--enable-scheme", kind)),
    ]
    # Its webhook server looks for certificates in TMPDIR, but its rotator always in /tmp.
    environment = {"MY_POD_NAMESPACE": "kubeflow", "TMPDIR": "/tmp"}
    return Part("training-operator", arguments, environment)


def mpi_operator(layout: Layout) -> Part:
    arguments: list[object] = [
        *("-kubeConfig", layout.kubeconfig, "-lock-namespace", "mpi-operator"),
        *("-kube-api-qps", _CALLS_A_SECOND, "-kube-api-burst", _BURST),
        *("-controller-queue-rate-limit", _CALLS_A_SECOND, "-controller-queue-burst", _BURST),
    ]
    return Part("mpi-operator", arguments, {})


def jobset(ports: Ports, layout: Layout, certificates: dict[str, bytes]) -> Part:
    return _configured(
        "jobset",
        {
            "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
            "internalCertManagement": {"enable": False},
            "webhook": {"host": LOOPBACK, "port": ports.jobset},
            "health": {"healthProbeBindAddress": f"{LOOPBACK}:{ports.jobset_health}"},
        },
        layout,
        certificates,
    )


def trainer(ports: Ports, layout: Layout, certificates: dict[str, bytes]) -> Part:
    return _configured(
        "trainer",
        {
            "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
            "certManagement": {"enable": False},
            "webhook": {"host": LOOPBACK, "port": ports.trainer},
            "health": {"healthProbeBindAddress": f"{LOOPBACK}:{ports.trainer_health}"},
        },
        layout,
        certificates,
    )


def kueue(ports: Ports, layout: Layout, certificates: dict[str, bytes]) -> Part:
    return _configured(
        "kueue",
        {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            # With certificates from elsewhere it would read others of the metrics from /etc.
            "internalCertManagement": {"enable": True},
            "webhook": {
                "host": LOOPBACK,
                "port": ports.kueue,
                "certDir": str(_certificates_of("kueue", layout)),
            },
            "health": {"healthProbeBindAddress": f"{LOOPBACK}:{ports.kueue_health}"},
            "integrations": {"frameworks": list(_QUEUED)},
            # A second API server, which would need its files in a folder at the root.
            "featureGates": {"VisibilityOnDemand": False},
        },
        layout,
        certificates,
    )


def _certificates_of(name: str, layout: Layout) -> Path:
    return layout.temporary(name) / "k8s-webhook-server" / "serving-certs"


def _configured(
    name: str, config: dict[str, Any], layout: Layout, certificates: dict[str, bytes]
) -> Part:
    folder = layout.temporary(name)
    write_certificates(certificates, _certificates_of(name, layout))
    common = {
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "metrics": {"bindAddress": "0"},
        "clientConnection": {"qps": _CALLS_A_SECOND, "burst": _BURST},
    }
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump({**config, **common}), encoding="utf-8")
    return Part(name, ["--config", file, "--kubeconfig", layout.kubeconfig], {})


def environment_of(part: Part, layout: Layout) -> dict[str, str]:
    """Nothing of the shell's environment: a KUBECONFIG or a proxy set there would override the
    arguments."""
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": str(layout.state),
        "TMPDIR": str(layout.temporary(part.name)),
        "KUBECONFIG": str(layout.kubeconfig),
        **part.environment,
    }


def remove_training_operator_certificates() -> None:
    """Removes the folder above them, too, unless it contains anything else."""
    shutil.rmtree(TRAINING_OPERATOR_CERTIFICATES, ignore_errors=True)
    with suppress(OSError):
        TRAINING_OPERATOR_CERTIFICATES.parent.rmdir()
