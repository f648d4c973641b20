"""The parent in each pod of a job. It needs only Python 3.8 or later with its standard library.

    PAYLOAD WORK run COMMAND...    prepares the pod, runs the command, leaves a termination message
    PAYLOAD WORK rank              a rank: a process that calls the function (`rank.py`)

PAYLOAD is the file that `carrier.py` has packed, WORK a folder of the pod for its files. A pod may
have several ranks, so each writes what it returns or raises to a file. Ranks of MPI run in other
pods than their parent, so they print it in frames. The parent turns all this into the termination
message: a line `KFTRAIN {...}` of JSON, and a text for people.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import zlib
from typing import IO, Any, Callable, Iterator, NoReturn

Json = Any
Start = Callable[..., "subprocess.Popen[bytes]"]

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
MARK = b"[kftrain "
FRAME = re.compile(rb"\[kftrain (\S+) (\w+) (\d+)/(\d+) (\w+) ([\w+/=]*)\]\r?\n?")
LONGEST_FRAME = 512
LAST_OUTPUT = 5.0  # seconds: what mpirun leaves running may keep its output open for ever


def main(words: list[str]) -> NoReturn:
    path, work, mode = words[:3]
    with open(path, "rb") as file:
        payload = json.loads(zlib.decompress(base64.b64decode(file.read())))
    if mode == "run":
        sys.exit(run(payload, work, words[3:]))
    if mode == "rank" and payload["frames"]:  # by a remote shell, in a pod that has no parent
        if problem := prepare(payload, work, subprocess.Popen):
            sys.exit(problem)
        os.execv(sys.executable, [sys.executable, *payload["boot"][1:], path, work, "prepared"])
    scope: Json = {"__name__": "kftrain_rank"}
    exec(compile(payload["rank"], "<kftrain>", "exec"), scope)
    sys.exit(scope["main"](payload, work))


# What the pod needs


def prepare(payload: Json, work: str, start: Start) -> str:
    """Unpacks the files and installs packages, once per pod: the first process does it, the others
    wait. Then sets the variables by which processes find them. Returns what went wrong, or ""."""
    own = os.path.join(work, ".kftrain")
    try:
        os.makedirs(own, exist_ok=True)
        with open(os.path.join(own, "lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not os.path.exists(os.path.join(own, "ready")):
                for name, (text, data, executable) in payload["files"].items():
                    unpack(os.path.join(work, name), base64.b64decode(data) or text.encode())
                    os.chmod(os.path.join(work, name), 0o755 if executable else 0o644)
                if payload["requirements"] and (problem := install(payload, own, start)):
                    return problem
                unpack(os.path.join(own, "ready"), b"")
    except OSError as error:
        return f"the pod could not be prepared: {error}"
    before = {"PATH": os.path.join(own, "packages", "bin")}
    if not payload["function"]:  # the launcher of a function must not import a file of the author
        before["PYTHONPATH"] = work
    for name, path in before.items():
        os.environ[name] = os.pathsep.join(filter(None, [path, os.environ.get(name)]))
    os.environ["PYTHONUSERBASE"] = os.path.join(own, "packages")
    os.environ.update(PYTHONNOUSERSITE="", PYTHONUNBUFFERED="1")
    return ""


def unpack(path: str, data: bytes) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)


def install(payload: Json, own: str, start: Start) -> str:
    # Into a folder of the pod, in addition to the image's packages. A virtual environment ignores
    # that folder, so there pip installs into the environment itself, if it is writable.
    in_venv = sys.prefix != sys.base_prefix
    temporary = os.path.join(own, "tmp")
    os.makedirs(temporary, exist_ok=True)
    environment = {**os.environ, "PYTHONUSERBASE": os.path.join(own, "packages")}
    environment.update(PIP_BREAK_SYSTEM_PACKAGES="1", PYTHONNOUSERSITE="", TMPDIR=temporary)
    command = [sys.executable, "-m", "pip", "install", "--no-cache-dir"]
    command += ["--disable-pip-version-check", *([] if in_venv else ["--user"])]
    command += [*payload["pip_args"], *payload["requirements"]]
    child, said = start(command, env=environment, stdout=-1, stderr=subprocess.STDOUT), b""
    for line in child.stdout or ():
        show(line)
        said = (said + line)[-2000:]
    where = "into the image's virtual environment" if in_venv else "beside the image's packages"
    what = f"pip could not install {', '.join(payload['requirements'])} {where}"
    return f"{what}.\n{said.decode(errors='replace').strip()}" if child.wait() else ""


def show(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


# The parent


class Signals:
    """Passes signals on to the child, including those that arrive before it has started."""

    def __init__(self) -> None:
        self.child: subprocess.Popen[bytes] | None = None
        self.came: list[int] = []
        for number in FORWARDED:
            signal.signal(number, self.forward)

    def forward(self, number: int, _frame: Any) -> None:
        self.came.append(number)
        if self.child is not None:
            self.child.send_signal(number)

    def start(self, command: list[str], **how: Any) -> subprocess.Popen[bytes]:
        self.child = child = subprocess.Popen(command, **how)
        for number in self.came:
            child.send_signal(number)
        return child


def run(payload: Json, work: str, command: list[str]) -> int:
    signals = Signals()
    for path in left(work):  # by an earlier container of the same pod
        os.unlink(path)
    problem = prepare(payload, work, signals.start)
    if signals.came:
        return 128 + signals.came[0]
    if payload["frames"] and "PET_NNODES" in os.environ:
        problem = "mpirun= is for a runtime with MPI, and this is a torch runtime: omit it"
    if problem:
        print(problem, file=sys.stderr)
        header = {"text": problem.partition("\n")[0][:400], "time": time.time()}
        leave(f"KFTRAIN {json.dumps(header)}\n{problem}")
        return 1
    if not command:  # the runtime of a TrainJob decides what starts the ranks
        launcher = ["torchrun", "--no_python"] if "PET_NNODES" in os.environ else []
        command = [*launcher, *payload["boot"], *sys.argv[1:3], "rank"]
    piped = subprocess.PIPE if payload["frames"] else None
    try:
        child = signals.start(command, cwd=work, stdout=piped)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        return 127 if isinstance(error, FileNotFoundError) else 126
    frames: Json = {}
    passing = threading.Thread(target=pass_on, args=(child.stdout, frames), daemon=True)
    if child.stdout:
        passing.start()
    code = child.wait()
    if child.stdout:
        passing.join(LAST_OUTPUT)
    if payload["function"]:
        leave(message(code, [*read(left(work)), *put_together(frames)]))
    return code if code >= 0 else 128 - code


def pass_on(stream: IO[bytes], frames: Json) -> None:
    """Prints the output of the ranks without their frames, which may stand anywhere in a line."""

    def keep(found: re.Match[bytes]) -> bytes:
        name, whole, number, count, checksum, data = found.groups()
        if b"%08x" % zlib.crc32(data) == checksum:
            frames.setdefault((name, whole, int(count)), {})[int(number)] = data
        return b""

    rest, chunk = b"", b"\n"
    while chunk:
        chunk = os.read(stream.fileno(), 65536)
        data = FRAME.sub(keep, rest + chunk)
        # The last bytes may be the beginning of a frame.
        start = data.rfind(b"[", max(0, len(data) - LONGEST_FRAME))
        begun = start >= 0 and (data.startswith(MARK, start) or MARK.startswith(data[start:]))
        end = start if chunk and begun else len(data)
        show(data[:end])
        rest = data[end:]


def put_together(frames: Json) -> Iterator[Json]:
    for (_, _, count), parts in list(frames.items()):
        if len(parts) == count:
            text = b"".join(parts[number] for number in range(count))
            yield json.loads(zlib.decompress(base64.b64decode(text)))
        else:
            header = {"problem": f"{count - len(parts)} of its {count} parts are lost in the log"}
            yield {"message": f"KFTRAIN {json.dumps(header)}\n", "failed": 0}


def left(work: str) -> list[str]:
    """The files of this pod's ranks."""
    own = os.path.join(work, ".kftrain")
    names = sorted(os.listdir(own)) if os.path.isdir(own) else []
    return [os.path.join(own, name) for name in names if re.fullmatch(r"rank-.*\.json", name)]


def read(paths: list[str]) -> Iterator[Json]:
    for path in paths:
        with open(path, "rb") as file:
            yield json.loads(file.read())


def message(code: int, records: list[Json]) -> str:
    """The value of rank 0, or the earliest exception."""
    failed = [each for each in records if each["failed"]]
    values = [each["message"] for each in records if each["message"] and not each["failed"]]
    if code == 0:
        return values[-1] if values else ""
    return min(failed, key=lambda each: each["failed"])["message"] if failed else ""


def leave(text: str) -> None:
    if not text:
        return
    path = os.environ.get("KFTRAIN_RESULT_FILE", "/dev/termination-log")
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        print(f"the termination message could not be written: {error}", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
