"""Records itself as a process of a container, and then becomes its command.

    python -I -S become.py RECORD AGENT PROGRAM WORD...

If the agent is killed just after it has started this process, its guard finds the record, or this
process finds the agent gone. It imports little, since every container waits for it. A shell would
be faster, but shells drop variables with unusual names.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys


def start_of(pid: int) -> str:
    """When a process has started, which distinguishes two processes with the same number. Raises
    OSError if it has ended, even if its exit code was not collected."""
    if sys.platform == "linux":
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name of the command may contain spaces and parentheses.
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
    # Python ignores these signals, and the command would inherit that.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execv(program, words)
    except OSError as error:
        print(f"cannot execute {program}: {error.strerror}", file=sys.stderr)  # noqa: T201
        sys.exit(126)


if __name__ == "__main__":
    main(*sys.argv[1:])
