"""Becomes another program that does not outlive the launcher: child.py LAUNCHER_PID PROGRAM ...

It runs as a script in the new process, since Python code between fork and exec is not safe in a
process with threads. Without PR_SET_PDEATHSIG (only Linux has it), the next start of a control
plane ends what a killed launcher has left behind.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    launcher, program = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != launcher:  # the launcher died before the call
            sys.exit(1)
    os.execv(program[0], program)


if __name__ == "__main__":
    main()
