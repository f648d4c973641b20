from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kftrain_local.agent import volumes
from kftrain_local.agent.environment import CannotStart
from kftrain_local.agent.unsupported import unsupported
from kftrain_local.agent.volumes import mount_paths, rewrite_paths
from tests.unit.local.pods import a_container, a_pod, sources


def make_volumes(folder: Path, *given: dict[str, Any]) -> dict[str, Path]:
    known = sources(configmaps_c={"k": "v", "l": "w"}, secrets_s={"pw": "hush"})
    pod = a_pod(volumes=list(given))
    return asyncio.run(volumes.make_volumes(pod, folder, known, lambda name: folder / "of" / name))


def modes(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): oct(path.stat().st_mode & 0o777)
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_volumes_become_folders_with_files_of_the_user_alone(tmp_path: Path) -> None:
    items = [{"key": "k", "path": "deep/script", "mode": 0o555}]
    downward = {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}
    parts = [{"secret": {"name": "s"}}, {"configMap": {"name": "c", "items": items}}]
    made = make_volumes(
        tmp_path,
        {"name": "config", "configMap": {"name": "c"}},
        {"name": "secret", "secret": {"secretName": "s", "defaultMode": 0o644}},
        {"name": "scratch", "emptyDir": {}},
        {"name": "down", "downwardAPI": downward},
        {"name": "all", "projected": {"sources": parts}},
    )
    assert set(made) == {"config", "secret", "scratch", "down", "all"}
    assert (tmp_path / "down/name").read_text() == "job-worker-0"
    assert modes(tmp_path) == {
        "config/k": "0o600",
        "config/l": "0o600",
        "secret/pw": "0o600",
        "down/name": "0o600",
        "all/pw": "0o600",
        "all/deep/script": "0o700",
    }


@pytest.mark.parametrize(
    ("volume", "text"),
    [
        ({"configMap": {"name": "no"}}, 'configmap "no" not found'),
        ({"secret": {"secretName": "s", "items": [{"key": "x", "path": "x"}]}}, "key: x"),
        ({"secret": {"secretName": "s", "items": [{"key": "pw", "path": "../x"}]}}, "leads out"),
        ({"nfs": {"path": "/", "server": "s"}}, "nfs is not supported"),
        ({"hostPath": {"path": "/no/such", "type": "Directory"}}, "/no/such is not a directory"),
        ({"hostPath": {"path": "/etc", "type": "File"}}, "/etc is not a file"),
    ],
)
def test_what_cannot_be_made_is_named(tmp_path: Path, volume: dict[str, object], text: str) -> None:
    with pytest.raises(CannotStart, match=text):
        make_volumes(tmp_path, {"name": "v", **volume})


def test_a_host_path_is_what_it_names_and_a_claim_is_a_folder(tmp_path: Path) -> None:
    given = tmp_path / "data"
    made = make_volumes(
        tmp_path,
        {"name": "host", "hostPath": {"path": str(given)}},
        {"name": "file", "hostPath": {"path": str(given / "file"), "type": "FileOrCreate"}},
        {"name": "claim", "persistentVolumeClaim": {"claimName": "c"}},
    )
    assert made == {"host": given, "file": given / "file", "claim": tmp_path / "of" / "c"}
    assert [given.is_dir(), (given / "file").is_file(), made["claim"].is_dir()] == [True] * 3


def test_mounts_with_parts_of_volumes(tmp_path: Path) -> None:
    mounts = [
        {"name": "v", "mountPath": "/data/"},
        {"name": "v", "mountPath": "/one", "subPath": "a/b"},
        {"name": "v", "mountPath": "/two", "subPathExpr": "$(POD)"},
    ]
    made = mount_paths(a_container(volumeMounts=mounts), {"v": tmp_path}, {"POD": "p"})
    assert made == {
        "/data": str(tmp_path),
        "/one": str(tmp_path / "a/b"),
        "/two": str(tmp_path / "p"),
    }


@pytest.mark.parametrize("value", ["../x", "/not/there", "a/../../x"])
@pytest.mark.parametrize("field", ["subPath", "subPathExpr"])
def test_no_part_leads_out_of_its_volume(tmp_path: Path, field: str, value: str) -> None:
    text = value if field == "subPath" else "$(X)"
    bad = a_container(volumeMounts=[{"name": "v", "mountPath": "/x", field: text}])
    with pytest.raises(CannotStart, match="leads out of the volume"):
        mount_paths(bad, {"v": tmp_path / "v"}, {"X": value})
    assert not (tmp_path / "v").exists()


def test_a_relative_mount_path_is_below_the_root(tmp_path: Path) -> None:
    mounts = [{"name": "v", "mountPath": "data/in/"}]
    made = mount_paths(a_container(volumeMounts=mounts), {"v": tmp_path}, {})
    assert made == {"/data/in": str(tmp_path)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/data", "/D"),
        ("--out=/data/x.pt", "--out=/D/x.pt"),
        ("cat /data/a > /data/b", "cat /D/a > /D/b"),
        ("/a:/data", "/a:/D"),
        ("/database", "/database"),
        ("/data-2", "/data-2"),
        ("s3://bucket/data", "s3://bucket/data"),
        ("/data/deep/x", "/DEEP/x"),
        ('"/data"', '"/D"'),
    ],
)
def test_mount_paths_are_rewritten_wherever_they_are_meant(text: str, expected: str) -> None:
    assert rewrite_paths(text, {"/data": "/D", "/data/deep": "/DEEP"}) == expected


def test_what_is_left_out_is_named() -> None:
    container = a_container(
        livenessProbe={"exec": {}}, lifecycle={"preStop": {}}, ports=[{"containerPort": 80}]
    )
    given = [
        {"name": "kube-api-access-x", "projected": {"sources": [{"serviceAccountToken": {}}]}},
        {"name": "t", "projected": {"sources": [{"serviceAccountToken": {}}]}},
    ]
    found = unsupported(a_pod(container, volumes=given, hostNetwork=True))
    assert set(found) == {
        "spec.hostNetwork",
        "spec.volumes[1].projected.sources[0].serviceAccountToken",
        "spec.containers[0].livenessProbe",
        "spec.containers[0].lifecycle",
        "spec.containers[0].ports[0].containerPort",
    }
