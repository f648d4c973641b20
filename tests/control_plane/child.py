"""Becomes another program that does not outlive the launcher: child.py LAUNCHER_PID PROGRAM ...

Run as a script in the new process: between fork and exec of a process with threads, Python code is
not safe. Where there is no PR_SET_PDEATHSIG (only Linux has it), the next start of a control
plane sweeps what a killed launcher has left.
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
        if os.getppid() != launcher:  # it died before we asked
            sys.exit(1)
    os.execv(program[0], program)


if __name__ == "__main__":
    main()
