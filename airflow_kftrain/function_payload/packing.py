"""Packs the author's files. The same files always give the same bytes, on every machine."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from airflow_kftrain.errors import InvalidSpec

LEFT_OUT = frozenset(
    {
        ".git",
        ".hg",
        ".svn",
        ".venv",
        ".tox",
        ".nox",
        ".mypy_cache",
        ".pytest_cache",
        ".ruff_cache",
        ".ipynb_checkpoints",
        ".DS_Store",
        "__pycache__",
        "node_modules",
    }
)
"""Caches and version control. Virtual environments (with a pyvenv.cfg) are left out, too."""
MOST_FILES = 1000
MOST_BYTES = 8 * 1024 * 1024
"""A larger file cannot fit, and is not even read."""


class Packed(NamedTuple):
    """Files by their paths in the pod, with forward slashes."""

    texts: dict[str, str]
    binaries: dict[str, bytes]
    executables: list[str]

    def sizes(self) -> list[tuple[int, str]]:
        """(bytes, path), the largest first."""
        sizes = [(len(text.encode()), path) for path, text in self.texts.items()]
        sizes += [(len(data), path) for path, data in self.binaries.items()]
        return sorted(sizes, key=lambda item: (-item[0], item[1]))


def pack(field: str, paths: Sequence[str], folder: str) -> Packed:
    """The files and folders of these names in a folder. Raises InvalidSpec."""
    root = Path(folder)
    found: dict[str, Path] = {}
    for number, path in enumerate(paths):
        for file in _files(f"{field}[{number}]", root, root / path):
            found[file.relative_to(root).as_posix()] = file
            if len(found) > MOST_FILES:
                raise InvalidSpec(
                    field,
                    f"has more than {MOST_FILES} files",
                    advice="Put them into the image or on a volume.",
                )
    packed = Packed({}, {}, [])
    for name in sorted(found):
        _add(packed, field, name, found[name])
    return packed


def _files(field: str, root: Path, path: Path) -> Iterator[Path]:
    if not path.exists():
        raise InvalidSpec(
            field,
            "there is no such file",
            value=str(path),
            advice="The path is relative to the DAG file, and the worker needs the file, too.",
        )
    _check_inside(field, root, path)
    if not path.is_dir():
        yield path
        return
    for entry in sorted(path.iterdir()):
        if entry.name in LEFT_OUT or (entry / "pyvenv.cfg").exists():
            continue
        if entry.is_symlink() and entry.is_dir():
            # A link to a folder around it would never end.
            _check_inside(field, root, entry)
            if entry.resolve() in (path.resolve(), *path.resolve().parents):
                raise InvalidSpec(
                    field, "a symbolic link leads to its own folder", value=str(entry)
                )
        yield from _files(field, root, entry)


def _check_inside(field: str, root: Path, path: Path) -> None:
    if not path.resolve().is_relative_to(root.resolve()):
        raise InvalidSpec(
            field,
            "a symbolic link leads out of the folder of the DAG file",
            value=str(path),
            advice="Copy the file into the folder.",
        )


def _add(packed: Packed, field: str, name: str, file: Path) -> None:
    try:
        size = file.stat().st_size
        if not file.is_file() or size > MOST_BYTES:
            what = "is too large" if file.is_file() else "is not a regular file"
            raise InvalidSpec(field, what, value=str(file), advice="Put it on a volume.")
        data = file.read_bytes()
        executable = os.access(file, os.X_OK)
    except OSError as error:
        raise InvalidSpec(field, f"cannot be read: {error.strerror}", value=str(file)) from error
    try:
        packed.texts[name] = data.decode()
    except UnicodeDecodeError:
        packed.binaries[name] = data
    if executable:
        packed.executables.append(name)
