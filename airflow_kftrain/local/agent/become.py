"""Puts itself on record as a process of a container, then becomes its command.

    python -I -S become.py RECORD AGENT PROGRAM WORD...

An agent that is killed a moment after it started this finds it on record at its end, or this finds
the agent gone. Imports little, since every container waits for it; a shell would do it faster, but
shells drop variables whose names they do not like.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys


def start_of(pid: int) -> str:
    """When a process has started: never the same for two processes with one number. OSError if it
    has ended, though nobody may have asked how."""
    if sys.platform == "linux":
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name of the command may hold spaces and parentheses.
            fields = file.read().rpartition(b")")[2].split()
        if fields[0] == b"Z":
            raise ProcessLookupError(pid)
        return fields[19].decode()
    listing = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], stdout=subprocess.PIPE)
    return listing.stdout.decode().strip()


def put_on_record(record: str, pid: int) -> None:
    with open(record, "a") as file:
        file.write(f"{pid} {start_of(pid)}\n")


def main(record: str, agent: str, program: str, *words: str) -> None:
    put_on_record(record, os.getpid())
    if os.getppid() != int(agent):
        os._exit(1)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and so would the command
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execv(program, words)
    except OSError as error:
        print(f"cannot execute {program}: {error.strerror}", file=sys.stderr)  # noqa: T201
        sys.exit(126)


if __name__ == "__main__":
    main(*sys.argv[1:])
