"""What an Airflow connection of type Kubernetes says, as far as cncf's hooks leave it to us."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from airflow_kftrain.errors import BadConnection, ClusterError
from airflow_kftrain.monitoring.text import one_line

USER_AGENT = "airflow-kftrain"
CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 30.0
"""An API server gives up after a minute at most; most calls take milliseconds."""
WATCH_GRACE = 15.0
"""By so much a watch may overrun: a server that vanished without a word is noticed then."""
LONGEST_EVENT = 16 << 20
LONGEST_LOG_LINE = 64 << 10

_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_SOURCES = ("in_cluster", "kube_config_path", "kube_config")


def field(extras: Mapping[str, Any], name: str) -> Any:
    """Of the connection's extra; old connections have it under a long name."""
    return extras.get(name) or extras.get(f"extra__kubernetes__{name}") or None


def is_on(extras: Mapping[str, Any], name: str) -> bool:
    value = field(extras, name)
    return value is True or str(value).strip().lower() in ("true", "1", "yes", "on")


def names_no_cluster(extras: Mapping[str, Any]) -> bool:
    return not any(field(extras, name) for name in _SOURCES)


def described(extras: Mapping[str, Any]) -> str:
    """Where the connection takes its credentials from, in words and without secrets."""
    context = field(extras, "cluster_context")
    of_context = f", context {context}" if context else ""
    if is_on(extras, "in_cluster"):
        return "the account of the pod that we are in (in_cluster)"
    if file := field(extras, "kube_config_path"):
        return f"kubeconfig {file}{of_context} (kube_config_path)"
    if field(extras, "kube_config"):
        return f"kubeconfig in the connection itself{of_context} (kube_config)"
    where = "the account of the pod that we are in" if is_in_pod() else "the default kubeconfig"
    return f"{where}{of_context}, since the connection names no cluster"


def is_in_pod() -> bool:
    """What the Kubernetes clients look at, before they read the pod's own token."""
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST"))


def choose_namespace(extras: Mapping[str, Any]) -> str:
    """The connection's, else that of the pod that we are in, else "default"."""
    return str(field(extras, "namespace") or _own_namespace() or "default")


def _own_namespace() -> str:
    try:
        return _POD_NAMESPACE.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def shown_server(host: str, connection: str | None) -> str:
    """Without user and path, which may be keys."""
    parts = urlsplit(host)
    place = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    return f"{place} ({_named(connection)})"


def check_address(host: str, connection: str | None) -> None:
    """Client libraries fail in all ways with an address that is none, and show it. Raises
    BadConnection."""
    try:
        parts = urlsplit(host)
        names_host = bool(parts.hostname and parts.hostname.encode("idna"))
        _ = parts.port
    except ValueError:
        names_host = False
    if names_host and parts.scheme in ("http", "https"):
        return
    raise BadConnection(
        f"use {_named(connection)}",
        "what it says of its server is no address",
        advice="Write one like https://kubernetes.example.com:6443.",
    )


def unsendable(connection: str | None) -> ClusterError:
    """For what a client library cannot even send. It is not quoted: it may hold the token."""
    return BadConnection(
        f"use {_named(connection)}",
        "no request can be made of what it says",
        advice="Neither its server may have a user's name in it, nor its token line breaks or "
        "other than plain letters.",
    )


def _named(connection: str | None) -> str:
    return f"Airflow connection {connection}" if connection else "no Airflow connection"


def request_headers(content_type: str) -> dict[str, str]:
    return {"Accept": "application/json", "Content-Type": content_type, "User-Agent": USER_AGENT}


_UNREADABLE = (ValueError, TypeError, AttributeError, KeyError)
"""What client libraries raise over a text, a list, or a user who is a word."""


def bad_connection(connection: str | None, error: Exception) -> ClusterError:
    """For whatever is raised while credentials are made of a connection."""
    kind = type(error).__name__
    if kind == "AirflowNotFoundException":
        problem, advice = "there is no such connection", "Make it, of the type Kubernetes."
    elif "YAML" in kind or "Scanner" in kind or "Parser" in kind or isinstance(error, _UNREADABLE):
        # Such an error quotes what it could not read: a kubeconfig, with its tokens.
        problem = "its kubeconfig cannot be read"
        advice = "It has to be YAML or JSON, as `kubectl config view --raw` shows it."
    else:
        problem, advice = one_line(f"{kind}: {error}"), "Correct it, then try again."
    found = BadConnection(f"use {_named(connection)}", problem, advice=advice)
    # A program that fetches a token may fail for a while.
    found.retryable = "exec: " in str(error)
    return found
