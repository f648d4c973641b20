"""hooks: connections that lead nowhere, or to a server of another kind."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from traceback import format_exception
from typing import Any

import pytest

from airflow_kftrain.errors import BadConnection, ClusterError, NotServed
from airflow_kftrain.kinds import PYTORCH_JOB
from tests.cluster.hooks import CONNECTION, Looped, meanwhile, set_connection

# The oldest supported cncf-kubernetes imports from modules that Airflow 3.1 has moved.
pytestmark = pytest.mark.filterwarnings("ignore:The `airflow")


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextlib.contextmanager
def _stranger(answer: bytes) -> Iterator[int]:
    """A server that is not an API server: it answers every request in the same way."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection, contextlib.suppress(OSError):
                        connection.recv(1 << 16)
                        connection.sendall(answer)

        thread = meanwhile(serve)
        yield int(listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def _kubeconfig_of(server: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"token": "hush"}}],
    }


def _lead_to(patch: pytest.MonkeyPatch, server: str) -> None:
    set_connection(patch, kube_config=json.dumps(_kubeconfig_of(server)))


def _told(hook: Any) -> str:
    with pytest.raises(ClusterError) as caught:
        hook.get(PYTORCH_JOB, "ml", "job")
    assert "hush" not in str(caught.value)
    return str(caught.value).removeprefix("cannot get PyTorchJob ml/job: ")


@pytest.fixture
def stray(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A hook that reaches nothing, and that gives up soon."""
    monkeypatch.setattr("airflow_kftrain.hooks.operations.PATIENCE", 0.4)
    with Looped(CONNECTION) as looped:
        yield looped


def test_a_port_where_nobody_listens_is_told(stray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server = f"http://127.0.0.1:{_free_port()}"
    _lead_to(monkeypatch, server)
    assert _told(stray) == (
        f"{server} (Airflow connection cluster) refuses connections. Check the address in the "
        "connection, and that the cluster is running."
    )


def test_a_name_that_nobody_knows_is_told(stray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _lead_to(monkeypatch, "http://cluster.invalid:1")
    assert _told(stray) == (
        "the host name in http://cluster.invalid:1 (Airflow connection cluster) cannot be "
        "resolved. Check the address in the connection, and the DNS settings of this machine."
    )


@pytest.mark.parametrize(
    "server",
    [
        "",
        "hush.example",
        "ftp://example/hush",
        "http://[hush",
        "http://example:hush",
        f"http://{'a' * 70}.example/hush",
    ],
)
def test_what_is_no_address_is_told(
    stray: Any, monkeypatch: pytest.MonkeyPatch, server: str
) -> None:
    _lead_to(monkeypatch, server)
    assert _told(stray).startswith("cannot use Airflow connection cluster: its server ")


def test_a_token_that_cannot_be_sent_is_told_and_not_quoted(
    stray: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example a token with a line break, from a file."""
    with _stranger(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}") as port:
        config = _kubeconfig_of(f"http://127.0.0.1:{port}")
        config["users"][0]["user"]["token"] = "hush\nhush"
        set_connection(monkeypatch, kube_config=json.dumps(config))
        with pytest.raises(BadConnection) as caught:
            stray.get(PYTORCH_JOB, "ml", "job")
        assert "a request cannot be built from it" in str(caught.value)
        assert "hush" not in "".join(format_exception(caught.value))


def test_a_server_without_tls_is_told(stray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with _stranger(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port:
        _lead_to(monkeypatch, f"https://127.0.0.1:{port}")
        assert _told(stray).startswith(
            f"the TLS handshake with https://127.0.0.1:{port} (Airflow connection cluster) failed. "
            "Check"
        )


PAGE = b"<html>Log in</html>"


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 19\r\nConnection: close\r\n\r\n" + PAGE,
            "is not a Kubernetes API server. Check the address in the connection",
        ),
        (
            b"HTTP/1.1 302 Found\r\nLocation: http://other/\r\nContent-Length: 0\r\n"
            b"Connection: close\r\n\r\n",
            "is not a Kubernetes API server. Check the address in the connection",
        ),
        (b"", "closed without a response"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "closed without a response"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", "closed without a response"),
        (
            b"HTTP/1.1 403 Forbidden\r\nContent-Length: 19\r\nConnection: close\r\n\r\n" + PAGE,
            "forbids this call: <html>Log in</html>. `airflow-kftrain doctor` shows",
        ),
    ],
    ids=["page", "redirect", "silence", "ssh", "half", "forbidden"],
)
def test_a_server_of_another_kind_is_told(
    stray: Any, monkeypatch: pytest.MonkeyPatch, answer: bytes, text: str
) -> None:
    with _stranger(answer) as port:
        _lead_to(monkeypatch, f"http://127.0.0.1:{port}")
        told = _told(stray)
    assert f"http://127.0.0.1:{port} (Airflow connection cluster)" in told
    assert text in told


def test_a_server_that_serves_nothing_of_ours_is_told(
    stray: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = b"HTTP/1.1 404 Not Found\r\nContent-Length: 19\r\nConnection: close\r\n\r\n" + PAGE
    with _stranger(answer) as port:
        _lead_to(monkeypatch, f"http://127.0.0.1:{port}")
        with pytest.raises(NotServed, match="Install training-operator"):
            stray.get(PYTORCH_JOB, "ml", "job")
