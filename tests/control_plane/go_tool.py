"""The go command: whether it exists, whether it is new enough, and calls to it in a fixed
environment."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from tests.control_plane.errors import GoUnusable

MODULES = Path(__file__).parent / "go"

# Settings of the shell for other projects must not change what is built, nor for which machine.
_DROPPED = ("GOOS", "GOARCH", "GOEXPERIMENT", "GOROOT", "GO111MODULE", "GOBIN")
_FIXED = {
    "GOTOOLCHAIN": "local",  # never download another Go
    "GOFLAGS": "-mod=readonly -trimpath -buildvcs=false",
    "GOWORK": "off",
}


class GoTool(NamedTuple):
    path: str
    version: str
    """As `go env` prints it: go1.26.8."""
    target: str
    """What binaries are built for: system, processor, and 1 if they may contain C."""
    build_cache: Path
    module_cache: Path

    def call(self, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.path, *arguments],
            cwd=folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in _DROPPED}
    return {**kept, **_FIXED}


def find_go() -> GoTool:
    """The go command on PATH. GoUnusable says in one line what is wrong with it."""
    wanted = required_version()
    path = shutil.which("go")
    if path is None:
        raise GoUnusable(
            f"no Go on PATH; the control plane is built with Go {_text(wanted)} or later"
        )
    names = ("GOVERSION", "GOOS", "GOARCH", "CGO_ENABLED", "GOCACHE", "GOMODCACHE")
    asked = subprocess.run(
        [path, "env", *names],
        cwd=MODULES,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    answers = asked.stdout.splitlines()
    if asked.returncode != 0 or len(answers) != len(names):
        raise GoUnusable(f"{path} does not run: {asked.stderr.strip() or asked.stdout.strip()}")
    version, *target, build_cache, module_cache = answers
    if _numbers(version) < wanted:
        raise GoUnusable(
            f"{path} is {version}; the control plane is built with Go {_text(wanted)} or later"
        )
    return GoTool(path, version, " ".join(target), Path(build_cache), Path(module_cache))


def required_version() -> tuple[int, ...]:
    """The highest `go` line of our go.mod files."""
    texts = [file.read_text(encoding="utf-8") for file in MODULES.glob("*/go.mod")]
    return max(_numbers(line) for text in texts for line in re.findall(r"^go (.*)$", text, re.M))


def _numbers(version: str) -> tuple[int, ...]:
    """(1, 26, 8) for "go1.26.8"; suffixes ("rc1", "-custom") do not count."""
    found = re.match(r"(?:go)?(\d+(?:\.\d+)*)", version)
    return tuple(int(number) for number in found[1].split(".")) if found else ()


def _text(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
