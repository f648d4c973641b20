from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from kftrain_local.agent.agent import main
from kftrain_local.api_client import BadKubeconfig, core, read_kubeconfig


def a_kubeconfig(folder: Path, user: dict[str, Any], **cluster: Any) -> Path:
    config = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [
            {"name": "c", "cluster": {"server": "https://127.0.0.1:1/secret/", **cluster}}
        ],
        "users": [{"name": "u", "user": user}],
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


def test_server_with_a_prefix_and_a_token_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t\n")
    cluster = read_kubeconfig(a_kubeconfig(tmp_path, {"tokenFile": "token"}))
    assert (cluster.server, cluster.token) == ("https://127.0.0.1:1/secret", "t")
    assert cluster.tls is not None
    assert cluster.tls.check_hostname


def test_insecure(tmp_path: Path) -> None:
    path = a_kubeconfig(tmp_path, {"token": "t"}, **{"insecure-skip-tls-verify": True})
    tls = read_kubeconfig(path).tls
    assert tls is not None
    assert not tls.check_hostname


@pytest.mark.parametrize(
    "user",
    [
        {"exec": {"command": "aws"}},
        {"client-certificate": "not-there.pem"},
        {"client-certificate-data": base64.b64encode(b"nonsense").decode()},
    ],
)
def test_what_cannot_be_used_is_refused(tmp_path: Path, user: dict[str, Any]) -> None:
    with pytest.raises(BadKubeconfig, match="kubeconfig"):
        read_kubeconfig(a_kubeconfig(tmp_path, user))


@pytest.mark.parametrize("text", ["", "a: [", "hello", "{}", "current-context: x"])
def test_what_is_no_kubeconfig_is_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    with pytest.raises(BadKubeconfig) as caught:
        read_kubeconfig(path)
    assert "\n" not in str(caught.value)


def test_paths() -> None:
    assert core("", "nodes", "n", "status") == "/api/v1/nodes/n/status"
    assert core("ns", "pods") == "/api/v1/namespaces/ns/pods"


@pytest.mark.parametrize(
    "words",
    [
        ["--python", "/not/there"],
        ["--cpu", "lots"],
        ["--memory", "-1"],
        ["--state-dir", "/dev/null/x"],
        [],  # nothing listens on that port
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    path = a_kubeconfig(tmp_path, {"token": "t"})
    state = tmp_path / "state"
    assert main(["--kubeconfig", str(path), "--state-dir", str(state), *words]) == 2
    told = capsys.readouterr().err.splitlines()
    assert [line for line in told if line.startswith("cannot run: ")]
    assert not state.exists()


def test_a_folder_with_other_things_in_it_is_left_alone(tmp_path: Path) -> None:
    path = a_kubeconfig(tmp_path, {"token": "t"})
    assert main(["--kubeconfig", str(path), "--state-dir", str(tmp_path)]) == 2
    assert path.exists()
