"""hooks: two threads use one hook. One of them renews the credentials while the other waits for an
answer."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from airflow_kftrain.errors import BadConnection, ClusterError, Forbidden, Unreachable
from airflow_kftrain.hooks.api_calls import get_version
from airflow_kftrain.hooks.training_job import TrainingJobHook
from tests.airflow.doorkeeper import serving
from tests.cluster.hooks import CONNECTION, meanwhile, set_connection

# The oldest supported cncf-kubernetes imports from modules that Airflow 3.1 has moved.
pytestmark = pytest.mark.filterwarnings("ignore:The `airflow")

ANONYMOUS = {
    "kind": "Status",
    "code": 403,
    "message": 'User "system:anonymous" cannot get path "/version"',
}


class Gate:
    """Holds its first request until the test says how to answer it. From then on it rejects the
    token "one" with 401, and accepts every other token."""

    def __init__(self) -> None:
        self.tokens: list[str] = []
        self.held = threading.Event()
        self._released = threading.Event()
        self._first: dict[str, Any] | None = None
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def release(self, answer: dict[str, Any] | None) -> None:
        """Answers the first request. None breaks its connection, and those that the client opens by
        itself afterwards with the same token."""
        self._first = answer
        self._released.set()

    @contextlib.contextmanager
    def at_work(self) -> Iterator[Gate]:
        with serving(self._server):
            try:
                yield self
            finally:
                self._released.set()

    def answer(self, token: str) -> dict[str, Any] | None:
        self.tokens.append(token)
        if len(self.tokens) == 1:
            self.held.set()
            self._released.wait()
            return self._first
        if token == "one":
            if self._released.is_set() and self._first is None:
                return None
            return {"kind": "Status", "code": 401, "message": "Unauthorized"}
        return {"gitVersion": token}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        gate = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                answer = gate.answer(self.headers.get("Authorization", "").split(" ")[-1])
                self.close_connection = True
                if answer is None:
                    return
                body = json.dumps(answer).encode()
                self.send_response(answer.get("code", 200))
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        return Handler


@pytest.fixture
def gate() -> Iterator[Gate]:
    with Gate().at_work() as gate:
        yield gate


class Caller:
    """Calls in a thread of its own, and keeps the result."""

    def __init__(self, hook: TrainingJobHook) -> None:
        self.error: ClusterError | None = None
        self._hook = hook
        self._thread = meanwhile(self._ask)

    def _ask(self) -> None:
        try:
            self._hook.ask(get_version())
        except ClusterError as error:
            self.error = error

    def ended(self) -> ClusterError | None:
        self._thread.join(20)
        assert not self._thread.is_alive()
        return self.error


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_kftrain.hooks.operations.PATIENCE", 0.0)


def write_kubeconfig(file: Path, server: str, token: str) -> None:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"token": token}}],
    }
    file.write_text(yaml.safe_dump(config), encoding="utf-8")


def test_a_client_that_was_renewed_meanwhile_is_kept(
    gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the client that was rejected is forgotten."""
    file = tmp_path / "kubeconfig"
    set_connection(monkeypatch, kube_config_path=str(file))
    write_kubeconfig(file, gate.url, "one")
    hook = TrainingJobHook(CONNECTION)
    slow = Caller(hook)
    assert gate.held.wait(20)
    write_kubeconfig(file, gate.url, "two")
    assert hook.ask(get_version())["gitVersion"] == "two"
    write_kubeconfig(file, gate.url, "three")
    gate.release(ANONYMOUS)
    assert isinstance(slow.ended(), Forbidden)
    assert hook.ask(get_version())["gitVersion"] == "two"
    assert gate.tokens == ["one", "one", "two", "two"]


def test_an_error_is_not_hidden_by_a_connection_that_was_broken_meanwhile(
    gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error can name the server without connecting again."""
    file = tmp_path / "kubeconfig"
    set_connection(monkeypatch, kube_config_path=str(file))
    write_kubeconfig(file, gate.url, "one")
    hook = TrainingJobHook(CONNECTION)
    slow = Caller(hook)
    assert gate.held.wait(20)
    set_connection(monkeypatch, kube_config_path="/nowhere/kubeconfig")
    with pytest.raises(BadConnection):
        hook.ask(get_version())
    gate.release(None)
    error = slow.ended()
    assert type(error) is Unreachable
    assert f"{gate.url} (Airflow connection cluster) closed without a response" in str(error)
