"""MPI's remote shell for pods that are processes: FOLDER NAMESPACE [options] HOST COMMAND...

Takes the place of ssh (mpi-operator) and of kubectl exec (training-operator's MPIJob v1). It waits
for the pod of that name to run, and becomes the command, with the pod's variables and working
directory. It puts itself on record in the pod's folder, so that the pod's end is its end too.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from airflow_kftrain.local.processes import start_of

ENVIRONMENT, ENDED, JOINED = "environment.json", "ended", "joined"
_WITH_VALUE = frozenset("BbcDEeFIiJLlmOopQRSWw")
_LONGEST_WAIT = 600.0
_LOOK_EVERY = 0.1


def split(words: list[str]) -> tuple[str, list[str]]:
    """(host, command) of a command line as ssh takes it."""
    index = 0
    while index < len(words) and words[index].startswith("-"):
        option = words[index]
        index += 2 if len(option) == 2 and option[1] in _WITH_VALUE else 1
    if index >= len(words) - 1:
        raise ValueError(f"no host and command in {words}")
    return words[index].rpartition("@")[2], words[index + 1 :]


def pod_of(host: str) -> str:
    """The first label of a pod's host name is the pod's name."""
    return host.partition(".")[0]


def wait_for(pod: Path, seconds: float) -> str:
    """Until the pod runs: its settings as JSON. Raises RuntimeError if it will not."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if (pod / ENDED).exists():
            raise RuntimeError("has ended")
        try:
            return (pod / ENVIRONMENT).read_text()
        except FileNotFoundError:
            time.sleep(_LOOK_EVERY)
    raise RuntimeError(f"did not run within {seconds:.0f} s")


def main(words: list[str]) -> None:
    names, namespace, *rest = words
    host, command = split(rest)
    pod = Path(names) / f"{namespace}.{pod_of(host)}"
    try:
        settings = json.loads(wait_for(pod, _LONGEST_WAIT))
        with open(pod / JOINED, "a") as file:
            file.write(f"{os.getpid()} {start_of(os.getpid())}\n")
        os.chdir(settings["folder"])
    except (RuntimeError, OSError) as error:
        sys.exit(f"pod {namespace}/{pod_of(host)}: {error}")
    # As ssh does: the words are one text for the shell of the other side.
    os.execve("/bin/sh", ["sh", "-c", " ".join(command)], settings["variables"])


if __name__ == "__main__":
    main(sys.argv[1:])
