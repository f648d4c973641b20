"""What trains in the fault matrix: says in a file of its run when it begins and when it ends, and
trains until it is told how to end. Standard library only.

The lock is the kernel's: whoever finds it taken trains beside another one of the same run, and a
training that has died, however it died, has it no more.
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
        run = f"worker-{run}"  # counted by itself
    with open(folder / f"{run}.lock", "a") as lock, open(folder / f"{run}.log", "a") as log:

        def say(word: str) -> None:
            # One write, appended: two who write at once do not mix.
            os.write(log.fileno(), f"{word} {os.getpid()} {time.time():.3f}\n".encode())

        say("begin")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("doubled")
        orders = (folder / f"go-{attempt}", folder / "go")
        while not (order := next((file for file in orders if file.exists()), None)):
            time.sleep(0.1)
        code = int(order.read_text() or 0)
        Path(os.environ["KFTRAIN_RESULT_FILE"]).write_text('{"loss": 0.5}')
        say("end")
        return code


if __name__ == "__main__":
    sys.exit(main())
