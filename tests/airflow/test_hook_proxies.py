"""hooks: clusters behind a proxy that only the kubeconfig names."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from airflow_kftrain.errors import BadConnection, Unreachable
from airflow_kftrain.hooks.api_calls import get_version
from tests.airflow.doorkeeper import Doorkeeper, serving
from tests.cluster.hooks import CONNECTION, Looped, meanwhile, set_connection

# The oldest supported cncf-kubernetes imports from modules that Airflow 3.1 has moved.
pytestmark = pytest.mark.filterwarnings("ignore:The `airflow")

SERVER = "https://cluster.invalid:6443"
"""An address that only the proxy can reach."""


class Proxy:
    """Leads every tunnel to one port, whatever address is requested."""

    def __init__(self, port: int) -> None:
        self.asked: list[tuple[str, str]] = []
        """The address and credentials of each tunnel."""
        self._target = ("127.0.0.1", port)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}"

    @contextlib.contextmanager
    def at_work(self) -> Iterator[Proxy]:
        with serving(self._server):
            yield self

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_CONNECT(self) -> None:
                said = self.headers.get("Proxy-Authorization", "")
                proxy.asked.append((self.path, base64.b64decode(said[6:]).decode()))
                with socket.create_connection(proxy._target) as there:
                    self.send_response(200)
                    self.end_headers()
                    back = meanwhile(lambda: pipe(there, self.connection))
                    pipe(self.connection, there)
                    back.join()
                self.close_connection = True

            def log_message(self, *_: object) -> None:
                pass

        return Handler


def pipe(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(1 << 16):
            sink.sendall(piece)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Doorkeeper]:
    with Doorkeeper("cluster", tmp_path / "cluster").at_work() as keeper:
        yield keeper


@pytest.fixture
def proxy(cluster: Doorkeeper) -> Iterator[Proxy]:
    with Proxy(cluster.port).at_work() as proxy:
        yield proxy


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr("airflow_kftrain.hooks.operations.PATIENCE", 0.0)
    with Looped(CONNECTION) as looped:
        yield looped


def behind(cluster: Doorkeeper, proxy_url: str) -> dict[str, Any]:
    """The certificate is for the loopback address, which `tls-server-name` names."""
    config = cluster.kubeconfig()
    config["clusters"][0]["cluster"] |= {
        "server": SERVER,
        "tls-server-name": "127.0.0.1",
        "proxy-url": proxy_url,
    }
    return config


@pytest.mark.parametrize("source", ["path", "text", "object", "default"])
def test_the_proxy_of_a_kubeconfig_is_used(
    hook: Any,
    cluster: Doorkeeper,
    proxy: Proxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    source: str,
) -> None:
    config = behind(cluster, f"http://{proxy.address}")
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    for module in (
        "kubernetes.config.kube_config",
        "kubernetes_asyncio.config.kube_config",
        "kubernetes_asyncio.config",
    ):
        name = f"{module}.KUBE_CONFIG_DEFAULT_LOCATION"
        monkeypatch.setattr(name, str(file), raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("NO_PROXY", "*")  # kubectl, too, reads it only for proxies from variables
    given: dict[str, Any] = {
        "path": {"kube_config_path": str(file)},
        "text": {"kube_config": json.dumps(config)},
        "object": {"kube_config": config},
        "default": {},
    }
    set_connection(monkeypatch, **given[source])
    assert hook.ask(get_version())["gitVersion"] == "cluster"
    assert proxy.asked == [("cluster.invalid:6443", "")]


def test_the_proxy_is_that_of_the_chosen_context(
    hook: Any, cluster: Doorkeeper, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = behind(cluster, f"http://{proxy.address}")
    config["current-context"] = "other"
    for key in ("clusters", "contexts"):
        config[key].append({**cluster.kubeconfig()[key][0], "name": "other"})
    config["contexts"][1]["context"] = {"cluster": "other", "user": "cluster"}
    set_connection(monkeypatch, kube_config=json.dumps(config), cluster_context="cluster")
    assert hook.ask(get_version())["gitVersion"] == "cluster"
    assert len(proxy.asked) == 1


def test_a_proxy_may_ask_for_a_password(
    hook: Any, cluster: Doorkeeper, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = behind(cluster, f"http://me:p%40ss@{proxy.address}")
    set_connection(monkeypatch, kube_config=json.dumps(config))
    assert hook.ask(get_version())["gitVersion"] == "cluster"
    assert proxy.asked == [("cluster.invalid:6443", "me:p@ss")]


def test_a_proxy_that_does_not_answer_is_named_without_its_password(
    hook: Any, cluster: Doorkeeper, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    config = behind(cluster, f"http://me:hush@127.0.0.1:{port}")
    set_connection(monkeypatch, kube_config=json.dumps(config))
    with pytest.raises(Unreachable) as caught:
        hook.ask(get_version())
    told = str(caught.value)
    assert (
        f"{SERVER} (Airflow connection cluster, through the proxy http://127.0.0.1:{port}) refuses "
        "connections."
    ) in told
    assert "hush" not in told


@pytest.mark.parametrize("url", ["socks5://me:hush@127.0.0.1:1", "hush", "http://[hush", "http://"])
def test_a_proxy_that_does_not_speak_http_is_refused(
    hook: Any, cluster: Doorkeeper, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    set_connection(monkeypatch, kube_config=json.dumps(behind(cluster, url)))
    with pytest.raises(BadConnection) as caught:
        hook.ask(get_version())
    assert str(caught.value) == (
        "cannot use Airflow connection cluster: the `proxy-url` of its kubeconfig is not the "
        "address of an HTTP proxy. Use one like http://proxy.example.com:3128."
    )
