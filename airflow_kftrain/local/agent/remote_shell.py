"""MPI's remote shell for pods that are processes: PODS NAMESPACE [options] HOST COMMAND...

Takes the place of ssh (mpi-operator) and of kubectl exec (training-operator's MPIJob v1). It waits
for the pod of that name to run, and becomes the command, with the pod's variables and working
directory. It puts itself on record with the pod's processes, so that the pod's end is its end too.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from airflow_kftrain.local.agent.become import put_on_record

DOOR = "door.json"
"""The file of a pod that says how to come in; empty once the pod has ended."""
_LONGEST_NAME = 100
"""A pod's name may be longer than a file's; of those that take ranks none is."""
_OPTIONS_WITH_VALUE = frozenset("BbcDEeFIiJLlmOopQRSWw")
_LONGEST_WAIT = 600.0
_LOOK_EVERY = 0.1


def split(words: list[str]) -> tuple[str, list[str]]:
    """(host, command) of a command line as ssh takes it."""
    index = 0
    while index < len(words) and words[index].startswith("-"):
        option = words[index]
        index += 2 if len(option) == 2 and option[1] in _OPTIONS_WITH_VALUE else 1
    if index >= len(words) - 1:
        raise ValueError(f"no host and command in {words}")
    return words[index].rpartition("@")[2], words[index + 1 :]


def folder_of(pods: Path, namespace: str, name: str, uid: str) -> Path:
    """Where the files of a pod are; none of these words holds an underscore."""
    return pods / f"{namespace}_{name[:_LONGEST_NAME]}_{uid}"


def wait_for(pods: Path, namespace: str, name: str, seconds: float) -> str:
    """Until the pod lets ranks in: what stands at its door. Raises RuntimeError if it ended."""
    # The pod of a Job has a host name without the five letters that end its own.
    names = (name, f"{name}-?????")
    places = [str(folder_of(Path(), namespace, each, "*") / DOOR) for each in names]
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        doors = [door.read_text() for place in places for door in pods.glob(place)]
        if any(doors):
            return max(doors)
        if doors:
            raise RuntimeError("has ended")
        time.sleep(_LOOK_EVERY)
    raise RuntimeError(f"did not run within {seconds:.0f} s")


def main(pods: str, namespace: str, *words: str) -> None:
    host, command = split(list(words))
    # The first label of a host's full name is the pod's.
    name = host.partition(".")[0]
    try:
        door = json.loads(wait_for(Path(pods), namespace, name, _LONGEST_WAIT))
        put_on_record(door["record"], os.getpid())
        os.chdir(door["folder"])
    except (RuntimeError, OSError) as error:
        sys.exit(f"pod {namespace}/{name}: {error}")
    # As ssh does: the words are one text for the shell of the other side.
    os.execve("/bin/sh", ["sh", "-c", " ".join(command)], door["variables"])


if __name__ == "__main__":
    main(*sys.argv[1:])
