"""Starts a control plane, watches it and stops it without a trace."""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from http.client import HTTPException
from pathlib import Path
from types import TracebackType

from tests.control_plane import access, checks, manifests, parts
from tests.control_plane.api import Api, Manifest
from tests.control_plane.build import Installation, Say, ensure_built, say_on_stderr
from tests.control_plane.certificates import (
    LOOPBACK,
    key_file,
    make_certificates,
    new_key,
    write_certificates,
)
from tests.control_plane.errors import ControlPlaneError
from tests.control_plane.machine_lock import HOME, MachineLock, record_of
from tests.control_plane.processes import Processes, ProcessId

TRAINING_OPERATOR = "training-operator"
MPI_OPERATOR = "mpi-operator"
KUEUE = "kueue"
WITHOUT_KUEUE = (TRAINING_OPERATOR, MPI_OPERATOR)
PROFILES = (*WITHOUT_KUEUE, KUEUE)

_NAMESPACES = ("kubeflow", "mpi-operator", "kueue-system")
_SERVE_AT_ONCE = 4
_SECONDS_OF_OTHERS = 2.0


class ControlPlane:
    """A context manager: on entry everything is ready, on exit everything is gone.

    Profiles: "training-operator" serves all its kinds, including MPIJob v1; with "mpi-operator"
    MPIJob is v2beta1. Both have Trainer v2 and JobSet. "kueue" is "mpi-operator" with Kueue, which
    queues only this MPIJob. Tests are separated by namespaces, since there is one control plane per
    machine: without `wait` a second one is rejected at once.
    """

    def __init__(
        self,
        profile: str,
        *,
        port: int | None = None,
        wait: bool = True,
        stoppable: bool = False,
        say: Say = say_on_stderr,
    ) -> None:
        """`stoppable`: others may stop it, as `down` does with a control plane that `up` has
        started."""
        if profile not in PROFILES:
            raise ControlPlaneError(f"no profile {profile!r}; there are {', '.join(PROFILES)}")
        self.profile = profile
        self._port = port
        self._wait = wait
        self._stoppable = stoppable
        self._say = say
        self._undo = ExitStack()
        self._kubeconfig_if_ready = ""

    def __enter__(self) -> ControlPlane:
        installation = ensure_built(self._say)
        try:
            self._prepare()
            try:
                self._start(installation)
            except (OSError, HTTPException) as error:
                self._processes.check()  # if the server has died, this error says so
                raise ControlPlaneError(f"the control plane does not start: {error}") from error
        except BaseException:
            self._undo.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._undo.close()

    @property
    def kubeconfig(self) -> Path:
        """That of the administrator, who may do everything."""
        return self._layout.kubeconfig

    @property
    def kubeconfig_without_rights(self) -> Path:
        """That of a user who is known but may do nothing."""
        return self._layout.state / "kubeconfig-without-rights"

    def check(self) -> None:
        """Raises PartDied, with the last lines of its log, if a process has ended by itself."""
        self._processes.check()

    def pids(self) -> dict[str, int]:
        return self._processes.pids()

    def api(self, token: str | None = None) -> Api:
        """As the administrator, or as the user of a token."""
        server = f"https://{LOOPBACK}:{self._ports.apiserver}"
        return Api(server, str(self._layout.ca), token or self._tokens["admin"])

    def api_without_rights(self) -> Api:
        return self.api(self._tokens["nobody"])

    def _api_of(self, port: int, token: str | None = None) -> Api:
        return Api(f"https://{LOOPBACK}:{port}", str(self._layout.ca), token)

    def forget_history(self) -> None:
        forget_history(self.api(), self.etcd())

    def etcd(self) -> Api:
        return Api(f"http://{LOOPBACK}:{self._ports.etcd}", None, None)

    def create_user(self, name: str, namespace: str, rules: Sequence[Manifest]) -> tuple[Path, Api]:
        """Creates a ServiceAccount with only these RBAC rules in a namespace."""
        token = access.service_account_token(self.api(), name, namespace, rules)
        file = self._layout.state / f"kubeconfig-{namespace}-{name}"
        self._write_kubeconfig(file, name, token, namespace)
        return file, self.api(token)

    def create_namespace(self, prefix: str) -> str:
        """Creates a namespace, and waits for what Kubernetes itself puts into each."""
        metadata = {"generateName": f"{prefix}-"}
        manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        name = self.api().create(manifest).required("a namespace")["metadata"]["name"]
        return str(name)

    # ---- start

    def _prepare(self) -> None:
        lock = MachineLock(self._say, HOME)
        lock.acquire(wait=self._wait)
        self._undo.callback(lock.release)
        self._lock = lock
        self._layout = parts.Layout(lock.state)
        self._layout.logs.mkdir()
        self._require_ports()
        self._ports = parts.free_ports(self._port)
        self._processes = Processes(self._layout.logs, self._record)
        self._undo.callback(self._processes.end)
        self._write_credentials()

    def _require_ports(self) -> None:
        """Only while holding the lock: before, the ports could be those of another control
        plane."""
        if self.profile != TRAINING_OPERATOR:
            self._require_free("", parts.MPI_OPERATOR_HEALTH_PORT, "mpi-operator, a constant of it")
        if self._port is not None:
            self._require_free(LOOPBACK, self._port, "the API server")

    def _require_free(self, address: str, port: int, what: str) -> None:
        if not parts.port_is_free(address, port):
            raise ControlPlaneError(f"port {port} is in use; it is needed for {what}")

    def _record(self, processes: Sequence[ProcessId]) -> None:
        self._lock.write(
            record_of(self.profile, self._kubeconfig_if_ready, processes, stoppable=self._stoppable)
        )

    def _write_credentials(self) -> None:
        layout = self._layout
        self._certificates = make_certificates()
        write_certificates(self._certificates, layout.certificates)
        layout.service_account_key.write_bytes(key_file(new_key()))
        self._tokens = {"admin": secrets.token_hex(16), "nobody": secrets.token_hex(16)}
        layout.tokens.write_text(
            f"{self._tokens['admin']},admin,admin,system:masters\n"
            f"{self._tokens['nobody']},nobody,nobody,\n",
            encoding="utf-8",
        )
        self._write_kubeconfig(layout.kubeconfig, "admin", self._tokens["admin"])
        self._write_kubeconfig(self.kubeconfig_without_rights, "nobody", self._tokens["nobody"])

    def _write_kubeconfig(
        self, file: Path, user: str, token: str, namespace: str = "default"
    ) -> None:
        access.write_kubeconfig(
            file,
            port=self._ports.apiserver,
            ca=self._certificates["ca.crt"],
            user=user,
            token=token,
            namespace=namespace,
        )

    def _start(self, installation: Installation) -> None:
        self._binaries = installation.binaries
        started = time.monotonic()
        self._start_kubernetes()
        self._create_what_operators_expect(installation)
        self._start_operators()
        self._create_webhooks_and_runtimes(installation)
        self._kubeconfig_if_ready = str(self.kubeconfig)
        self._record(self._processes.ids())
        self._say(
            f"control plane: {self.profile} is ready after {time.monotonic() - started:.1f} s"
        )

    def _run(self, part: parts.Part) -> None:
        environment = parts.environment_of(part, self._layout)
        command = [self._binaries / part.name, *part.arguments]
        self._processes.start(part.name, command, environment)

    def _start_kubernetes(self) -> None:
        ports, layout = self._ports, self._layout
        self._run(parts.etcd(ports, layout))
        self._run(parts.apiserver(ports, layout))
        checks.wait_for({"kube-apiserver": checks.ok(self.api(), "/readyz")}, self._processes)
        self._run(parts.controller_manager(ports, layout))
        self._run(parts.scheduler(ports, layout))

    def _create_what_operators_expect(self, installation: Installation) -> None:
        with_v2beta1 = self.profile != TRAINING_OPERATOR
        crds = manifests.crds(installation.modules, mpi_v2beta1=with_v2beta1)
        secrets_of_rotators = [self._secret("kubeflow", "training-operator-webhook-cert")]
        if self.profile == KUEUE:
            port, ca = self._ports.kueue, self._certificates["ca.crt"]
            crds += manifests.kueue_crds(installation.modules["kueue"], port=port, ca=ca)
            secrets_of_rotators.append(self._secret("kueue-system", "kueue-webhook-server-cert"))
        namespaces = [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            for name in _NAMESPACES
        ]
        self._apply(namespaces)
        self._apply([*crds, *secrets_of_rotators])
        wanted = {crd["metadata"]["name"]: checks.serves(self.api(), crd) for crd in crds}
        checks.wait_for(wanted, self._processes)
        parts.remove_training_operator_certificates()
        self._undo.callback(parts.remove_training_operator_certificates)
        write_certificates(self._certificates, parts.TRAINING_OPERATOR_CERTIFICATES)
        # Before its operator starts: the rotator should find the certificates.
        self._apply_webhooks(installation, "training-operator", self._ports.training_operator)

    def _secret(self, namespace: str, name: str) -> Manifest:
        """Where a rotator looks for certificates."""
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": namespace},
            "data": {
                name: base64.b64encode(content).decode()
                for name, content in self._certificates.items()
            },
        }

    def _start_operators(self) -> None:
        ports, layout, certificates = self._ports, self._layout, self._certificates
        with_mpi_v1 = self.profile == TRAINING_OPERATOR
        self._run(parts.training_operator(ports, layout, with_mpi=with_mpi_v1))
        self._run(parts.jobset(ports, layout, certificates))
        self._run(parts.trainer(ports, layout, certificates))
        if not with_mpi_v1:
            self._run(parts.mpi_operator(layout))
        ca = str(layout.ca)
        ready = {
            "kube-controller-manager": checks.ok(
                Api(f"https://{LOOPBACK}:{ports.controller_manager}", ca, None), "/healthz"
            ),
            "kube-scheduler": checks.ok(
                Api(f"https://{LOOPBACK}:{ports.scheduler}", ca, None), "/readyz"
            ),
            "training-operator": checks.answers_tls(ports.training_operator, ca),
            "jobset": checks.answers_tls(ports.jobset, ca),
            "trainer": checks.answers_tls(ports.trainer, ca),
        }
        checks.wait_for(ready, self._processes)
        health = {
            "training-operator": checks.ok_without_tls(ports.training_operator_health, "/readyz"),
            "jobset": checks.ok_without_tls(ports.jobset_health, "/readyz"),
            "trainer": checks.ok_without_tls(ports.trainer_health, "/readyz"),
        }
        if not with_mpi_v1:
            health["mpi-operator"] = checks.leads(self.api(), "mpi-operator", "mpi-operator")
        checks.wait_for(health, self._processes)

    def _start_kueue(self) -> None:
        """When the others are ready: with its webhooks, no job can be created without it."""
        self._run(parts.kueue(self._ports, self._layout, self._certificates))
        health = checks.ok_without_tls(self._ports.kueue_health, "/readyz")
        checks.wait_for({"kueue": health}, self._processes)

    def _create_webhooks_and_runtimes(self, installation: Installation) -> None:
        self._apply_webhooks(installation, "jobset", self._ports.jobset)
        self._apply_webhooks(installation, "trainer", self._ports.trainer)
        self._apply(manifests.runtimes(installation.modules["trainer"]))
        self._wait_for_refusals(checks.NONSENSE)
        if self.profile == KUEUE:
            self._start_kueue()
            self._apply_webhooks(installation, "kueue", self._ports.kueue)
            self._wait_for_refusals(checks.NONSENSE_FOR_KUEUE)

    def _wait_for_refusals(self, nonsense: Mapping[str, Manifest]) -> None:
        refusals = {
            webhook: checks.refuses(self.api(), manifest, webhook)
            for webhook, manifest in nonsense.items()
        }
        checks.wait_for(refusals, self._processes)

    def _apply_webhooks(self, installation: Installation, module: str, port: int) -> None:
        sources, ca = installation.modules[module], self._certificates["ca.crt"]
        self._apply(manifests.webhooks(module, sources, port=port, ca=ca))

    def _apply(self, wanted: Sequence[Manifest]) -> None:
        """Several at once: the API server is slow with a CRD."""
        api = self.api()

        def apply(manifest: Manifest) -> None:
            name = f"{manifest['kind']} {manifest['metadata']['name']}"
            api.apply(manifest).required(name)

        with ThreadPoolExecutor(_SERVE_AT_ONCE) as pool:
            for _ in pool.map(apply, wanted):
                pass


def forget_history(api: Api, etcd: Api) -> None:
    """Compacts etcd, so that old versions are gone, as they are after five minutes by themselves.
    The API server itself remembers more, for most kinds but not for events."""
    version = api.call("GET", "/api/v1/namespaces").object["metadata"]["resourceVersion"]
    # Other clients have just listed something, and are about to watch from there.
    time.sleep(_SECONDS_OF_OTHERS)
    etcd.call("POST", "/v3/kv/compaction", {"revision": version}).required("a compaction")
