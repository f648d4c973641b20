"""Turns the spec of a container into the command of a process."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from kftrain_local.agent.addresses import DEFAULTS, HOSTS_OF_MPI, mpi_variables
from kftrain_local.agent.environment import (
    CannotStart,
    Environment,
    Sources,
    expand,
    make_environment,
)
from kftrain_local.agent.machine import write_script
from kftrain_local.agent.processes import PACKAGE_ROOT
from kftrain_local.agent.sandbox import Sandbox
from kftrain_local.agent.volumes import mount_paths, rewrite_paths
from kftrain_local.api_client import Object

_INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ")
"""The only variables of the agent that a pod gets: the others are private."""
_TERMINATION_LOG = "/dev/termination-log"
_CANNOT_CREATE = "CreateContainerError"


class Launch(NamedTuple):
    """What to start."""

    program: str
    words: list[str]
    """What the program sees as its arguments, beginning with its own name."""
    variables: dict[str, str]
    folder: str


async def prepare(pod: Sandbox, container: Object, message_file: Path) -> Launch:
    """Raises CannotStart."""
    check_image(container.get("image") or "")
    if not container.get("command"):
        raise CannotStart(
            "no command specified: images are not run, so a container needs a command of its own",
            _CANNOT_CREATE,
        )
    sources = Sources(pod.machine.api, pod.namespace)
    environment = await make_environment(pod.object, container, sources)
    paths = mount_paths(container, pod.volumes, environment.values)
    paths[container.get("terminationMessagePath") or _TERMINATION_LOG] = str(message_file)
    variables = _variables(pod, container, environment, paths)
    # Variables that the agent adds are not part of the spec: on a cluster, $(HOME) is not replaced.
    declared = {name: variables[name] for name in environment.values}
    words = [
        pod.peers.rewrite(expand(rewrite_paths(word, paths), declared))
        for word in [*container["command"], *(container.get("args") or [])]
    ]
    if os.path.basename(words[0]) == "sshd":
        # The ssh server of an MPI worker: ranks come through the remote shell instead.
        words = ["tail", "-f", "/dev/null"]
    folder = _work_folder(pod, container, paths)
    program = find_program(words[0], variables, folder)
    if os.path.dirname(program) == str(pod.machine.bin):
        # Not by the script: its shell would drop variables with unusual names.
        program = words[0] = pod.machine.settings.python
    return Launch(program, words, variables, folder)


def check_image(image: str) -> None:
    """Images are not pulled, but authors can see what happens with bad ones."""
    if not image or "//" in image or image != image.strip():
        raise CannotStart(
            f'Failed to apply default image tag "{image}": couldn\'t parse image name '
            f'"{image}": invalid reference format',
            "InvalidImageName",
        )
    if image.startswith("missing/"):
        raise CannotStart(f'Back-off pulling image "{image}": not found', "ImagePullBackOff")


def _variables(
    pod: Sandbox, container: Object, environment: Environment, paths: Mapping[str, str]
) -> dict[str, str]:
    rewritten = pod.peers.rewrite_variables(environment.values)
    if changed := environment.values.items() - rewritten.items():
        shown = {name: value for name, value in changed if name not in environment.secret}
        pod.cluster_env[container["name"]] = shown
    given = {name: rewrite_paths(value, paths) for name, value in rewritten.items()}
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    pod.scratch.mkdir(parents=True, exist_ok=True, mode=0o700)
    tools = (str(pod.machine.bin), os.path.dirname(pod.machine.settings.python))
    own = {
        "PATH": os.pathsep.join([*tools, inherited.get("PATH", os.defpath)]),
        "TMPDIR": str(pod.scratch),
        "HOSTNAME": pod.object["spec"].get("hostname") or pod.name,
    }
    mpi = mpi_variables(given, str(_remote_shell(pod)), takes_ranks(pod.object, container))
    return {**inherited, **own, **DEFAULTS, **given, **mpi}


def takes_ranks(pod: Object, container: Object) -> bool:
    """Whether MPI may start ranks in a container."""
    labels = pod["metadata"].get("labels") or {}
    words = container.get("command") or [""]
    operator = str(labels.get("training.kubeflow.org/operator-name", ""))
    # The launcher of a TrainJob counts as a node, but MPI knows this machine by another name.
    launches = any(each["name"] == HOSTS_OF_MPI for each in container.get("env") or ())
    return launches or operator.startswith("mpi") or os.path.basename(words[0]) == "sshd"


def _remote_shell(pod: Sandbox) -> Path:
    """The program with which MPI starts ranks in other pods of the namespace."""
    script = pod.folder / "remote-shell"
    words = [sys.executable, "-m", "kftrain_local.agent.remote_shell"]
    words += [str(pod.machine.pods), pod.namespace]
    write_script(script, f'PYTHONPATH={shlex.quote(PACKAGE_ROOT)} exec {shlex.join(words)} "$@"')
    return script


def _work_folder(pod: Sandbox, container: Object, paths: Mapping[str, str]) -> str:
    wanted = container.get("workingDir")
    if not wanted:
        return pod.machine.work_folder
    folder = Path(rewrite_paths(wanted, paths))
    if pod.folder in folder.parents:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not folder.is_dir():
        raise CannotStart(
            f"workingDir {wanted} is neither on this machine nor in a volume of the pod",
            _CANNOT_CREATE,
        )
    return str(folder)


def find_program(word: str, variables: Mapping[str, str], folder: str) -> str:
    """The file that a command names. Raises CannotStart."""
    place = os.path.join(folder, word) if "/" in word else word
    found = shutil.which(place, path=variables.get("PATH", os.defpath))
    if found is None:
        raise CannotStart(
            f'exec: "{word}": executable file not found on this machine (images are not run)',
            _CANNOT_CREATE,
        )
    return found
