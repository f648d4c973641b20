"""What a web page, or another user of this machine, could send to the embedded cluster.

Whoever creates a pod can run commands as the user who runs the cluster. A page in that user's
browser can send requests to ports of this machine, from another origin, and only some kinds of them
unless the server agrees. Another user of the machine can send anything, but does not know the
secret path.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import secrets
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from tests.cluster.world import World
from tests.control_plane.api import Manifest

_JSON = "application/json"
_EVIL = "http://evil.example"


class Attacker:
    """Sends anything to the port of the cluster."""

    def __init__(self, world: World) -> None:
        config = yaml.safe_load(world.target.kubeconfig.read_text(encoding="utf-8"))
        server = urlsplit(config["clusters"][0]["cluster"]["server"])
        assert server.hostname == "127.0.0.1"
        assert server.port is not None
        self.port = server.port
        self.secret = server.path
        self.pods = f"/api/v1/namespaces/{world.namespace}/pods"
        self.world = world

    def send(
        self, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> tuple[int, str, Mapping[str, str]]:
        """Header names have `_` instead of `-`. Only the given headers and Host are sent."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        host = headers.pop("Host", f"127.0.0.1:{self.port}")
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            connection.putheader("Host", host)
            for name, value in headers.items():
                connection.putheader(name.replace("_", "-"), value)
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            response = connection.getresponse()
            text = response.read().decode("utf-8", "replace")
            return response.status, text, {**response.headers}
        finally:
            connection.close()

    def tries(self, path: str, **headers: str) -> int:
        """Tries to create a pod. Returns the code of the answer."""
        code, _, answered = self.send("POST", path, json.dumps(_pod()).encode(), **headers)
        assert not [name for name in answered if name.lower().startswith("access-control-")]
        return code

    def got_nothing(self) -> None:
        assert self.world.names("Pod") == []


def _pod() -> Manifest:
    main = {"name": "main", "image": "x", "command": ["touch", "/tmp/owned"]}
    spec = {"containers": [main], "restartPolicy": "Never"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "evil"}, "spec": spec}


@pytest.fixture
def attacker(world: World) -> Attacker:
    return Attacker(world)


def test_the_rightful_user_can(attacker: Attacker) -> None:
    """Otherwise the other tests would prove nothing."""
    dry = f"{attacker.secret}{attacker.pods}?dryRun=All"
    assert attacker.tries(dry, Content_Type=_JSON) == 201


# ----- attackers that do not know the path


@pytest.mark.parametrize(
    "before",
    [
        *("", "/", "//", "/wrong", f"/{'0' * 32}", "/{less}", "/{more}", "/{upper}"),
        *("/x/../{secret}x", "/{secret}x", "/.", "/..", "/%2e%2e", "/;{less}", "/{secret}%00"),
    ],
)
def test_without_the_path_there_is_nothing(attacker: Attacker, before: str) -> None:
    secret = attacker.secret.strip("/")
    guess = before.format(
        less=secret[:-1], more=f"{secret}0", upper=f"{secret.upper()}X", secret=secret
    )
    assert attacker.tries(f"{guess}{attacker.pods}", Content_Type=_JSON) == 404
    for path in ("/version", "/healthz", "/api", "/openapi/v3", attacker.pods):
        code, text, _ = attacker.send("GET", f"{guess}{path}")
        assert (code, text) == (404, "404 page not found\n")
    attacker.got_nothing()


def test_the_path_is_random_and_long(attacker: Attacker) -> None:
    assert re.fullmatch(r"/[0-9a-f]{32}", attacker.secret)


def test_the_path_is_not_told(attacker: Attacker) -> None:
    secret = attacker.secret.strip("/")
    for path in ("/", "/api", "/%00", "/" + "a" * 7000):
        code, text, headers = attacker.send("GET", path)
        assert code in (400, 404)
        assert secret not in text + str(headers)


def test_the_processes_of_the_cluster_do_not_show_it(attacker: Attacker) -> None:
    """Every user can read the arguments of processes."""
    words = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert attacker.secret.strip("/") not in words.stdout


def test_a_guess_that_is_right_at_first_is_not_told_from_others(attacker: Attacker) -> None:
    """Neither by its code nor by its text, however much of it is right."""
    secret = attacker.secret
    answers = {
        attacker.send("GET", f"{secret[:size]}/version")[:2] for size in range(len(secret) - 1)
    }
    assert answers == {(404, "404 page not found\n")}


# ----- a web page that might know the path from somewhere


@pytest.mark.parametrize(
    "kind",
    [
        *("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"),
        *("", "text/plain; charset=application/json", "text/plain, application/json"),
        *("application/octet-stream", "text/json", "*/*"),
    ],
)
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_what_a_page_can_send_without_asking_changes_nothing(
    attacker: Attacker, method: str, kind: str
) -> None:
    path = attacker.secret + attacker.pods
    path += "" if method == "POST" else "/evil"
    headers = {"Content_Type": kind} if kind else {}
    body = json.dumps(_pod()).encode()
    code, _, _ = attacker.send(method, path, body, Origin=_EVIL, **headers)
    assert code == 415 if method != "PATCH" else code in (404, 415)
    attacker.got_nothing()


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_a_page_that_asks_is_not_allowed(attacker: Attacker, method: str) -> None:
    code, _, headers = attacker.send(
        "OPTIONS",
        attacker.secret + attacker.pods,
        Origin=_EVIL,
        Access_Control_Request_Method=method,
        Access_Control_Request_Headers="content-type",
        Access_Control_Request_Private_Network="true",
    )
    assert code >= 400
    assert not [name for name in headers if name.lower().startswith("access-control-")]


def test_a_page_cannot_read_an_answer(attacker: Attacker) -> None:
    _, _, headers = attacker.send("GET", attacker.secret + attacker.pods, Origin=_EVIL)
    assert not [name for name in headers if name.lower().startswith("access-control-")]


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:{port}", "127.0.0.1", "localhost", "127.0.0.1:1"),
        *("127.0.0.1.evil.example:{port}", "127.0.0.1:{port}.evil.example", "0.0.0.0:{port}"),
        *("127.1:{port}", "[::1]:{port}", "LOCALHOST.:{port}", "127.0.0.1:{port}@evil", ""),
    ],
)
def test_another_name_of_this_machine_is_not_answered(attacker: Attacker, host: str) -> None:
    """The host name of a page may be made to point here; then the browser sees no other origin."""
    path = attacker.secret + attacker.pods
    code = attacker.tries(path, Content_Type=_JSON, Host=host.format(port=attacker.port))
    assert code in (400, 404)
    attacker.got_nothing()


# ----- malformed requests


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/namespaces/{other}%2F..%2F{mine}/pods",
        "/api/v1/namespaces/../namespaces/{mine}/pods",
        "/api/v1/namespaces/{mine}/../{mine}/pods",
        "/api/v1/./namespaces/{mine}/pods",
        "/api/v1//namespaces/{mine}/pods",
        "/api/v1/namespaces/{mine}/pods/..%2f..%2fsecrets",
        "/api/v1/namespaces/{mine}/pods/evil%00/status",
        "/api/v1/namespaces/{mine}/pods/%2e%2e/status",
        "http://evil.example/api/v1/namespaces/{mine}/pods",
    ],
)
def test_tricks_with_paths_lead_nowhere(attacker: Attacker, path: str) -> None:
    place = path.format(other="default", mine=attacker.world.namespace)
    place = attacker.secret + place if place.startswith("/") else place
    code = attacker.tries(place, Content_Type=_JSON)
    assert 400 <= code < 500
    attacker.got_nothing()


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b"\xff\xfe",
        b'{"metadata": 1}',
        b'{"metadata": {"name": {}}}',
        b'{"metadata": {"name": "p", "ownerReferences": ["x"]}}',
        b'{"metadata": {"name": "p"}, "spec": []}',
        b'{"metadata": {"name": "p"}, "spec": {"containers": [1]}}',
        b'{"metadata": {"name": "../p"}, "spec": {"containers": []}}',
        b'{"metadata": {"name": "p", "labels": {"a": 1}}}',
    ],
    ids=["deep", "deeper", "no-text", *map(str, range(7))],
)
@pytest.mark.parametrize("kind", [_JSON, "application/yaml", "application/vnd.kubernetes.protobuf"])
def test_a_body_that_makes_no_sense_is_refused(attacker: Attacker, body: bytes, kind: str) -> None:
    code, text, _ = attacker.send("POST", attacker.secret + attacker.pods, body, Content_Type=kind)
    assert 400 <= code < 500, text
    assert json.loads(text)["kind"] == "Status"
    attacker.got_nothing()


def test_a_body_that_is_too_long_is_refused(attacker: Attacker) -> None:
    body = json.dumps({**_pod(), "x": "a" * (4 << 20)}).encode()
    code, text, _ = attacker.send("POST", attacker.secret + attacker.pods, body, Content_Type=_JSON)
    assert (code, json.loads(text)["reason"]) == (413, "RequestEntityTooLarge")
    attacker.got_nothing()


def test_two_lengths_are_refused(attacker: Attacker) -> None:
    """Otherwise a request could be hidden in the body of another one."""
    with socket.create_connection(("127.0.0.1", attacker.port), 10) as connection:
        head = f"POST {attacker.secret}{attacker.pods} HTTP/1.1\r\n"
        head += f"Host: 127.0.0.1:{attacker.port}\r\nContent-Type: {_JSON}\r\n"
        head += "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        connection.sendall(head.encode())
        assert connection.recv(4096).split()[1] == b"400"
    attacker.got_nothing()


# ----- files and ports


def test_files_are_for_their_user_only(attacker: Attacker) -> None:
    kubeconfig = attacker.world.target.kubeconfig
    assert _mode(kubeconfig) == 0o600
    assert _mode(kubeconfig.parent) == 0o700
    pod = attacker.world.pod("p", "sleep", "60", terminationGracePeriodSeconds=1)
    pod.phase("Running")
    for folder, folders, files in os.walk(kubeconfig.parent):
        assert _mode(Path(folder)) & 0o022 == 0, folder
        for name in (*folders, *files):
            assert os.lstat(Path(folder) / name).st_uid == os.getuid()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to another user")
def test_a_folder_of_another_user_is_not_used() -> None:
    """Its owner could exchange the files in it."""
    name = f"test-{secrets.token_hex(4)}"
    folder = Path(tempfile.gettempdir()) / f"kftrain-0-{name}"
    folder.mkdir()
    try:
        os.chown(folder, 65534, 65534)
        words = [sys.executable, "-m", "airflow_kftrain", "local", "up", "--name", name]
        done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == 2
        assert done.stderr.endswith("cannot be used: it belongs to another user\n")
        assert list(folder.iterdir()) == []
    finally:
        folder.rmdir()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a link to another user")
def test_a_link_of_another_user_is_not_followed(tmp_path: Path) -> None:
    """It would lead to a folder of this user, which would be made private, and used."""
    link, folder = tmp_path / "kftrain-0-linked", tmp_path / "mine"
    folder.mkdir()
    folder.chmod(0o755)
    link.symlink_to(folder)
    os.lchown(link, 65534, 65534)
    words = [sys.executable, "-m", "airflow_kftrain", "local", "up", "--name", "linked"]
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [*words, "--detach"], capture_output=True, text=True, timeout=30, check=False, env=env
    )
    assert done.returncode == 2
    assert done.stderr.endswith("cannot be used: it belongs to another user\n")
    assert _mode(folder) == 0o755


def test_nothing_listens_beyond_this_machine(attacker: Attacker) -> None:
    process = int((attacker.world.target.kubeconfig.parent / "ready").read_text().split()[0])
    found = [line.split()[3] for line in _listening() if f"pid={process}," in line]
    assert f"127.0.0.1:{attacker.port}" in found
    assert {place.rpartition(":")[0] for place in found} == {"127.0.0.1"}


def _listening() -> list[str]:
    words = ["ss", "--listening", "--tcp", "--numeric", "--processes", "--no-header"]
    try:
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    except FileNotFoundError:
        pytest.skip("ss is not installed")


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)
