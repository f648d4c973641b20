"""MPI's remote shell for pods that are processes: PODS NAMESPACE [options] HOST COMMAND...

It replaces ssh (mpi-operator) and kubectl exec (training-operator's MPIJob v1). It waits until the
pod of that name runs, and then becomes the command, with the variables and the working directory of
the pod. It records itself as one of the pod's processes, so it ends with the pod.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from kftrain_local.agent.become import put_on_record

ENTRY = "entry.json"
"""The file of a pod that says how to start a rank in it; empty when the pod has ended."""
_LONGEST_NAME = 100
"""The name of a pod may be longer than that of a file can be; that of a pod with ranks is not."""
_OPTIONS_WITH_VALUE = frozenset("BbcDEeFIiJLlmOopQRSWw")
_LONGEST_WAIT = 600.0
_LOOK_EVERY = 0.1


def split(words: list[str]) -> tuple[str, list[str]]:
    """(host, command) of a command line like that of ssh."""
    index = 0
    while index < len(words) and words[index].startswith("-"):
        option = words[index]
        index += 2 if len(option) == 2 and option[1] in _OPTIONS_WITH_VALUE else 1
    if index >= len(words) - 1:
        raise ValueError(f"no host and command in {words}")
    return words[index].rpartition("@")[2], words[index + 1 :]


def folder_of(pods: Path, namespace: str, name: str, uid: str) -> Path:
    """The folder with the files of a pod. None of these parts contains an underscore."""
    return pods / f"{namespace}_{name[:_LONGEST_NAME]}_{uid}"


def wait_for(pods: Path, namespace: str, name: str, seconds: float) -> str:
    """Waits until the pod accepts ranks, and returns how to start one. Raises RuntimeError if the
    pod has ended."""
    # The host name of a Job's pod lacks the five random characters of its name.
    names = (name, f"{name}-?????")
    places = [str(folder_of(Path(), namespace, each, "*") / ENTRY) for each in names]
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        entries = [entry.read_text() for place in places for entry in pods.glob(place)]
        if any(entries):
            return max(entries)
        if entries:
            raise RuntimeError("has ended")
        time.sleep(_LOOK_EVERY)
    raise RuntimeError(f"did not run within {seconds:.0f} s")


def main(pods: str, namespace: str, *words: str) -> None:
    host, command = split(list(words))
    # The first label of a full host name is that of the pod.
    name = host.partition(".")[0]
    try:
        entry = json.loads(wait_for(Path(pods), namespace, name, _LONGEST_WAIT))
        put_on_record(entry["record"], os.getpid())
        os.chdir(entry["folder"])
    except (RuntimeError, OSError) as error:
        sys.exit(f"pod {namespace}/{name}: {error}")
    # As ssh does: the words are one text for the remote shell.
    os.execve("/bin/sh", ["sh", "-c", " ".join(command)], entry["variables"])


if __name__ == "__main__":
    main(*sys.argv[1:])
