"""Reads an Airflow connection of type Kubernetes, as far as cncf's hooks do not do that."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from airflow_kftrain.errors import BadConnection, ClusterError, OtherCluster
from airflow_kftrain.monitoring.text import one_line

USER_AGENT = "airflow-kftrain"
CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 30.0
"""An API server gives up after a minute at most; most calls take milliseconds."""
WATCH_GRACE = 15.0
"""How much longer than requested a watch may last. Then the server has silently disappeared."""
LONGEST_EVENT = 16 << 20
LONGEST_LOG_LINE = 64 << 10

_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_SOURCES = ("in_cluster", "kube_config_path", "kube_config")


def field(extras: Mapping[str, Any], name: str) -> Any:
    """A field of the connection's extra. Old connections have it under a longer name."""
    return extras.get(name) or extras.get(f"extra__kubernetes__{name}") or None


def is_on(extras: Mapping[str, Any], name: str) -> bool:
    value = field(extras, name)
    return value is True or str(value).strip().lower() in ("true", "1", "yes", "on")


def names_no_cluster(extras: Mapping[str, Any]) -> bool:
    return not any(field(extras, name) for name in _SOURCES)


def described(extras: Mapping[str, Any]) -> str:
    """Says where the credentials come from, without secrets."""
    context = field(extras, "cluster_context")
    of_context = f", context {context}" if context else ""
    if is_on(extras, "in_cluster"):
        return "the ServiceAccount of this pod (in_cluster)"
    if file := field(extras, "kube_config_path"):
        return f"kubeconfig {file}{of_context} (kube_config_path)"
    if field(extras, "kube_config"):
        return f"kubeconfig in the connection itself{of_context} (kube_config)"
    where = "the ServiceAccount of this pod" if is_in_pod() else "the default kubeconfig"
    return f"{where}{of_context}, since the connection names no cluster"


def is_in_pod() -> bool:
    """Checks what the Kubernetes clients check before they read the pod's own token."""
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST"))


def in_cluster(extras: Mapping[str, Any]) -> bool:
    """Whether the ServiceAccount of our own pod is used instead of a kubeconfig."""
    return is_on(extras, "in_cluster") or (names_no_cluster(extras) and is_in_pod())


def choose_namespace(extras: Mapping[str, Any]) -> str:
    """The connection's namespace, else that of our own pod, else "default"."""
    return str(field(extras, "namespace") or _own_namespace() or "default")


def _own_namespace() -> str:
    try:
        return _POD_NAMESPACE.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def shown_server(host: str, connection: str | None, proxy: str | None = None) -> str:
    """The address without user and path, which may be keys."""
    through = f", through the proxy {_place(proxy)}" if proxy else ""
    return f"{_place(host)} ({_named(connection)}{through})"


def _place(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


_DIGEST = 12
_PORTS = {"http": ":80", "https": ":443"}


def fingerprint(configuration: Any) -> str:
    """Identifies the cluster of a client: its address, and a hash of the address and its
    certificate authority. It contains no secrets, so it may be stored. It is the same on workers
    and triggerers whose connections are the same."""
    place = _place(configuration.host).lower()
    place = place.removesuffix(_PORTS.get(urlsplit(place).scheme, ""))
    path = urlsplit(configuration.host).path.rstrip("/")
    try:
        authority = Path(configuration.ssl_ca_cert or "").read_bytes()
    except OSError:
        authority = b""
    whole = b"\n".join((place.encode(), path.encode(), authority.strip()))
    return f"{place}#{hashlib.sha256(whole).hexdigest()[:_DIGEST]}"


def other_cluster(connection: str | None, wanted: str, found: str) -> OtherCluster:
    """`wanted` and `found` are fingerprints."""
    return OtherCluster(
        f"reach the cluster at {address_of(wanted)}, where the job was submitted",
        leads_elsewhere(connection, wanted, found),
        advice="Restore the connection until the job has ended; or clear the task, so that it "
        "runs on the new cluster, and delete the old job by hand.",
    )


def leads_elsewhere(connection: str | None, wanted: str, found: str) -> str:
    """Says that a connection does not have the wanted fingerprint."""
    source = _named(connection) if connection else "the configuration of this process"
    where = address_of(found)
    if where == address_of(wanted):
        where += ", but to another path or with another certificate authority"
    return f"{source} now leads to {where}"


def address_of(cluster: str) -> str:
    """The address in a fingerprint."""
    return cluster.partition("#")[0]


def check_address(host: str, connection: str | None) -> None:
    """Client libraries fail in many ways if an address is invalid, and quote it. Raises
    BadConnection."""
    if _is_address(host):
        return
    raise BadConnection(
        f"use {_named(connection)}",
        "its server address is not valid",
        advice="Use one like https://kubernetes.example.com:6443.",
    )


def check_proxy(url: str, connection: str | None) -> None:
    """Raises BadConnection without quoting the URL, which may contain a password."""
    if _is_address(url):
        return
    raise BadConnection(
        f"use {_named(connection)}",
        "the `proxy-url` of its kubeconfig is not the address of an HTTP proxy",
        advice="Use one like http://proxy.example.com:3128.",
    )


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        names_host = bool(parts.hostname and parts.hostname.encode("idna"))
        _ = parts.port
    except ValueError:
        return False
    return names_host and parts.scheme in ("http", "https")


def unsendable(connection: str | None) -> ClusterError:
    """The error for a request that a client library cannot send. It quotes nothing, since that may
    be the token."""
    return BadConnection(
        f"use {_named(connection)}",
        "a request cannot be built from it",
        advice="Its server address must not contain a user name, and its token no line breaks or "
        "special characters.",
    )


def _named(connection: str | None) -> str:
    return f"Airflow connection {connection}" if connection else "no Airflow connection"


def request_headers(content_type: str) -> dict[str, str]:
    return {"Accept": "application/json", "Content-Type": content_type, "User-Agent": USER_AGENT}


_UNREADABLE = (ValueError, TypeError, AttributeError, KeyError)
"""What client libraries raise if a kubeconfig is text, a list, or has a user that is not a
mapping."""


def bad_connection(connection: str | None, error: Exception) -> ClusterError:
    """The error for any exception while credentials are created from a connection."""
    kind = type(error).__name__
    if kind == "AirflowNotFoundException":
        problem, advice = "there is no such connection", "Create it, with the type Kubernetes."
    elif "YAML" in kind or "Scanner" in kind or "Parser" in kind or isinstance(error, _UNREADABLE):
        # Such an error quotes what it could not read: a kubeconfig with its tokens.
        problem = "its kubeconfig cannot be read"
        advice = "It must be YAML or JSON, as `kubectl config view --raw` prints it."
    else:
        problem, advice = one_line(f"{kind}: {error}"), "Correct it, then try again."
    found = BadConnection(f"use {_named(connection)}", problem, advice=advice)
    # The program that fetches a token may fail only temporarily.
    found.retryable = "exec: " in str(error)
    return found
