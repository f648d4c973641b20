"""Packing the author's files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from airflow_kftrain import Code, InvalidSpec, PyTorchJob
from airflow_kftrain.function_payload import carrier, packing
from airflow_kftrain.function_payload.packing import pack


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A DAG folder."""
    root = tmp_path / "dags"
    for name in ("lib/a.py", "lib/deep/b.py", "lib/__pycache__/a.pyc", "lib/.git/HEAD", "one.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"# {name}\n")
    (root / "lib/env/bin").mkdir(parents=True)
    (root / "lib/env/pyvenv.cfg").write_text("")
    (root / "lib/env/bin/python").write_text("")
    return root


def test_folders_are_packed_without_caches_and_environments(folder: Path) -> None:
    packed = pack("files", ["lib/", "one.py"], str(folder))
    assert list(packed.texts) == ["lib/a.py", "lib/deep/b.py", "one.py"]


def test_binaries_and_executables_are_kept(folder: Path) -> None:
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "data.bin").write_bytes(b"\xff\x00")
    packed = pack("files", ["data.bin", "run.sh"], str(folder))
    assert packed.binaries == {"data.bin": b"\xff\x00"}
    assert packed.executables == ["run.sh"]


def test_the_same_files_are_the_same_bytes_in_whatever_order_and_when(folder: Path) -> None:
    def packed(*files: str) -> carrier.Payload:
        return carrier.make_payload(Code(files=files), None, str(folder), frames=False)

    first = packed("lib", "one.py")
    os.utime(folder / "one.py", (0, 0))
    assert packed("one.py", "lib/") == first
    (folder / "one.py").write_text("other\n")
    assert packed("lib", "one.py").digest != first.digest


def test_a_link_within_the_folder_is_followed(folder: Path) -> None:
    (folder / "link.py").symlink_to(folder / "one.py")
    assert pack("files", ["link.py"], str(folder)).texts == {"link.py": "# one.py\n"}


@pytest.mark.parametrize(
    ("target", "told"),
    [("../outside.py", "leads out of the folder"), (".", "leads to its own folder")],
)
def test_a_link_that_leads_elsewhere_is_refused(folder: Path, target: str, told: str) -> None:
    (folder.parent / "outside.py").write_text("secret")
    (folder / "lib" / "link").symlink_to(
        folder / "lib" / target if target == "." else folder.parent / "outside.py"
    )
    with pytest.raises(InvalidSpec, match=told):
        pack("files", ["lib"], str(folder))


def test_a_file_that_is_not_there_is_named(folder: Path) -> None:
    with pytest.raises(InvalidSpec, match=r"files\[0\]: there is no such file.*nowhere.py"):
        pack("files", ["nowhere.py"], str(folder))


def test_too_many_and_too_large_files_are_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "MOST_FILES", 1)
    with pytest.raises(InvalidSpec, match="has more than 1 files"):
        pack("files", ["lib"], str(folder))
    monkeypatch.setattr(packing, "MOST_BYTES", 3)
    with pytest.raises(InvalidSpec, match="is too large"):
        pack("files", ["one.py"], str(folder))


def test_what_cannot_be_carried_is_refused_with_the_largest_files(folder: Path) -> None:
    (folder / "big.bin").write_bytes(os.urandom(40_000))
    with pytest.raises(InvalidSpec) as caught:
        carrier.make_payload(Code(files=["big.bin", "lib"]), None, str(folder), frames=False)
    said = str(caught.value)
    assert "limit is 32,768. The largest parts are big.bin (40,000 bytes), lib/deep/b.py" in said
    assert "mount a volume" in said


@pytest.mark.parametrize("path", ["/etc/passwd", "../other.py", "lib/../../x"])
def test_paths_lead_down(path: str) -> None:
    with pytest.raises(InvalidSpec, match=r"code.files\[0\]: must be a path below"):
        PyTorchJob(image="i", workers=0, command=["a"], code=Code(files=[path]))
