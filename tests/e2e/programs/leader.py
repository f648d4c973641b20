"""The training of the fault matrix. It writes to a file of its run when it starts and ends, and
trains until it is told how to end. Standard library only.

The lock is the kernel's: a training that finds it taken runs at the same time as another one of its
run, and a training that has died in any way no longer holds it.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from pathlib import Path


def main() -> int:
    folder = Path(os.environ["FAULTS_FOLDER"])
    run, attempt = os.environ["KFTRAIN_RUN_ID"], os.environ["KFTRAIN_ATTEMPT"]
    if os.environ.get("RANK", "0") != "0":
        run = f"worker-{run}"  # counted separately
    with open(folder / f"{run}.lock", "a") as lock, open(folder / f"{run}.log", "a") as log:

        def say(word: str) -> None:
            # One write that appends: two simultaneous ones do not mix.
            os.write(log.fileno(), f"{word} {os.getpid()} {time.time():.3f}\n".encode())

        say("begin")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("doubled")
        orders = (folder / f"go-{attempt}", folder / f"go-{run}", folder / "go")
        while not (order := next((file for file in orders if file.exists()), None)):
            time.sleep(0.1)
        code = int(ordered) if (ordered := order.read_text()) != "hog" else _hog()
        Path(os.environ["KFTRAIN_RESULT_FILE"]).write_text('{"loss": 0.5}')
        say("end")
        return code


def _hog() -> int:
    """Uses more memory than the row allows, until it is killed."""
    memory = bytearray(300 << 20)
    time.sleep(600)
    return len(memory)


if __name__ == "__main__":
    sys.exit(main())
