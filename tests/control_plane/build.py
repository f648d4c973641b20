"""Builds the binaries of the control plane into a cache outside the checkout.

The cache has a folder for each set of sources, Go version and flags. A build works in a folder next
to it, `KEY.partial`, which becomes `KEY` when the last binary is complete: nobody ever sees half of
one. The next build takes over what an interrupted one has finished.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.control_plane import go_tool
from tests.control_plane.errors import BuildFailed, ControlPlaneError
from tests.control_plane.go_tool import MODULES, GoTool

Say = Callable[[str], None]


class Binary(NamedTuple):
    name: str
    module: str
    """The folder under go/."""
    package: str
    stamp: str = ""
    """Linker settings; without them Kubernetes reports version v0.0.0."""


KUBERNETES = "1.36.3"
_STAMP = " ".join(
    f"-X k8s.io/component-base/version.{name}={value}"
    for name, value in (("gitVersion", f"v{KUBERNETES}"), ("gitMajor", "1"), ("gitMinor", "36"))
)

BINARIES = (
    Binary("etcd", "etcd", "."),
    Binary(
        "training-operator",
        "training-operator",
        "github.com/kubeflow/training-operator/cmd/training-operator.v1",
    ),
    Binary("jobset", "jobset", "sigs.k8s.io/jobset"),
    Binary("trainer", "trainer", "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager"),
    Binary("mpi-operator", "mpi-operator", "github.com/kubeflow/mpi-operator/cmd/mpi-operator"),
    Binary("kueue", "kueue", "sigs.k8s.io/kueue/cmd/kueue"),
    *(
        Binary(name, "kube", f"k8s.io/kubernetes/cmd/{name}", _STAMP)
        for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
    ),
)

# The modules whose CRDs, webhook configurations and runtimes are read: folder under go/ -> module.
MANIFEST_MODULES = {
    "training-operator": "github.com/kubeflow/training-operator",
    "mpi-operator": "github.com/kubeflow/mpi-operator",
    "trainer": "github.com/kubeflow/trainer/v2",
    "jobset": "sigs.k8s.io/jobset",
    "kueue": "sigs.k8s.io/kueue",
}

# The free space that a build needs: with an empty cache, and with the modules.
_COLD_GB, _WARM_GB = 10, 3
_LINES_OF_A_LOG = 15


class Installation(NamedTuple):
    binaries: Path
    modules: dict[str, Path]
    """The sources of each of MANIFEST_MODULES, by the folder's name."""


def say_on_stderr(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def cache_root() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "airflow-kftrain" / "control-plane"


def ensure_built(say: Say = say_on_stderr) -> Installation:
    """Builds what is not built yet. Takes well under a second if everything is."""
    go = go_tool.find_go()
    root = cache_root()
    finished = root / key_of(go)
    if not finished.exists():
        with _lock(root, say):
            if not finished.exists():  # another build may have finished while this one waited
                _build_all(go, finished, say)
    return Installation(finished / "bin", _module_folders(go, finished))


def key_of(go: GoTool) -> str:
    digest = hashlib.sha256(repr((BINARIES, go.version, go.target, _flags(""))).encode())
    for file in sorted(MODULES.glob("*/*")):
        digest.update(f"\0{file.relative_to(MODULES)}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def _flags(stamp: str) -> list[str]:
    return ["-ldflags", f"-s -w {stamp}"]


@contextmanager
def _lock(root: Path, say: Say) -> Iterator[None]:
    try:
        root.mkdir(parents=True, exist_ok=True)
        lock = (root / "build.lock").open("w")
    except OSError as error:
        raise ControlPlaneError(f"cannot write to the cache {root}: {error.strerror}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("control plane: another process is building it; waiting for that")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build_all(go: GoTool, finished: Path, say: Say) -> None:
    _check_space(go, finished.parent)
    partial = finished.with_suffix(".partial")
    binaries, logs = partial / "bin", partial / "logs"
    binaries.mkdir(parents=True, exist_ok=True)
    logs.mkdir(exist_ok=True)
    for leftover in binaries.glob("*.unfinished"):
        leftover.unlink()
    missing = [binary for binary in BINARIES if not (binaries / binary.name).exists()]
    say(
        f"control plane: {len(missing)} binaries to build with {go.version}, into {finished}"
        " (about 11 minutes on 2 cores the first time, a minute if Go has them in its cache)"
    )
    for number, binary in enumerate(missing, start=1):
        say(f"[{number}/{len(missing)}] {binary.name} ...")
        started = time.monotonic()
        _build(go, binary, binaries / binary.name, logs / f"{binary.name}.log")
        say(f"[{number}/{len(missing)}] {binary.name}: {time.monotonic() - started:.0f} s")
    _module_folders(go, partial)
    partial.rename(finished)


def _build(go: GoTool, binary: Binary, target: Path, log: Path) -> None:
    # A name of our own: the go of a builder that was killed may still be writing.
    unfinished = target.with_suffix(f".{os.getpid()}.unfinished")
    with log.open("wb") as output:
        result = subprocess.run(
            [go.path, "build", *_flags(binary.stamp), "-o", str(unfinished), binary.package],
            cwd=MODULES / binary.module,
            env=go_tool.environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if result.returncode != 0:
        raise BuildFailed(_why_it_failed(binary, log))
    unfinished.rename(target)


def _why_it_failed(binary: Binary, log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    if any("no space left on device" in line for line in lines):
        return f"no space left on the disk while building {binary.name} (log: {log})"
    tail = "".join(f"\n    {line}" for line in lines[-_LINES_OF_A_LOG:])
    return f"go cannot build {binary.name} (log: {log}){tail}"


def _check_space(go: GoTool, root: Path) -> None:
    """Before the build spends its first minute. The cache is warm if Kubernetes' sources and a
    build cache exist."""
    sources = go.module_cache / f"k8s.io/kubernetes@v{KUBERNETES}"
    cold = not (sources.exists() and go.build_cache.exists())
    needed = _COLD_GB if cold else _WARM_GB
    for folder in (root, go.build_cache, go.module_cache):
        free = shutil.disk_usage(_existing(folder)).free / 1e9
        if free < needed:
            raise ControlPlaneError(
                f"building the control plane needs about {needed} GB, but where {folder} lies"
                f" only {free:.1f} GB are free"
            )


def _existing(folder: Path) -> Path:
    return next(place for place in (folder, *folder.parents) if place.exists())


def _module_folders(go: GoTool, folder: Path) -> dict[str, Path]:
    """The folders of the modules' sources: Go is asked once, then a file in the cache is read."""
    memory = folder / "modules.json"
    if memory.exists():
        known = {name: Path(path) for name, path in json.loads(memory.read_text()).items()}
        # `go clean -modcache` removes them.
        if all(path.is_dir() for path in known.values()):
            return known
    found = {name: _module_folder(go, name, module) for name, module in MANIFEST_MODULES.items()}
    fresh = memory.with_suffix(f".{os.getpid()}")
    fresh.write_text(json.dumps({name: str(path) for name, path in found.items()}))
    fresh.replace(memory)
    return found


def _module_folder(go: GoTool, name: str, module: str) -> Path:
    question = ("list", "-m", "-f", "{{.Dir}}", module)
    answer = go.call(*question, folder=MODULES / name)
    if answer.returncode == 0 and not answer.stdout.strip():  # known, but not on the disk
        go.call("mod", "download", module, folder=MODULES / name)
        answer = go.call(*question, folder=MODULES / name)
    if answer.returncode != 0 or not answer.stdout.strip():
        raise BuildFailed(f"go cannot say where {module} is: {answer.stderr.strip()}")
    return Path(answer.stdout.strip())
