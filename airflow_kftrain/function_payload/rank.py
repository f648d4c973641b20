"""A rank: a process of a job that calls the function. It needs only Python 3.8 or later.

`runner.py` executes it. It hands what the function returns or raises to the parent, as a text for
the termination message: a line `KFTRAIN {...}` in JSON, and a traceback for people.
"""

from __future__ import annotations

import base64
import contextlib
import faulthandler
import importlib
import json
import logging
import os
import signal
import sys
import time
import traceback
import zlib
from typing import Any, NoReturn

Json = Any

LIMIT = 4096  # what Kubernetes keeps of a termination message
PART = 384  # so that a frame is less than 512 bytes, which no pipe mixes with other output
PAUSE = 0.01
LONGEST_CHAIN = 20
RANKS = (
    "HOROVOD_RANK",
    "OMPI_COMM_WORLD_RANK",
    "PMIX_RANK",
    "PMI_RANK",
    "RANK",
    "JOB_COMPLETION_INDEX",
)


def main(payload: Json, work: str) -> Any:
    name, leads = place()
    parent = Parent(payload, work, name)
    # In case rank 0 ends itself, for example by os._exit(0). It also replaces what this process
    # left before torchrun started it again, perhaps with another number.
    parent.take(told({"value": None}) if leads else "")
    with_files_of(work)
    faulthandler.enable()
    if payload["function"]["stacks"]:
        faulthandler.register(signal.SIGTERM, chain=True)
    form = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    logging.basicConfig(level=logging.INFO, format=form)
    try:
        value = call(payload["function"])
    except KeyboardInterrupt:
        raise
    except SystemExit as error:
        code = error.code
    except BaseException as error:
        header, text = raised(error, payload["function"], payload["fatal"], name)
        parent.take(told(header, text), failed=header["time"])
        with contextlib.suppress(Exception):  # the function may have closed it
            print(text, file=sys.stderr, flush=True)
        code = 1
    else:
        if leads:
            parent.take(returned(value))
        return 0
    if code and payload["frames"]:
        end_at_once(code)
    return code


def end_at_once(code: Any) -> NoReturn:
    """Of a rank of MPI that has failed: at Python's end mpi4py would wait for all other ranks, and
    these may wait for this one. mpirun ends them."""
    with contextlib.suppress(Exception):
        if not isinstance(code, int):
            print(code, file=sys.stderr)
        logging.shutdown()
        sys.stdout.flush()
    os._exit(code & 255 if isinstance(code, int) else 1)


def place() -> tuple[str, bool]:
    """(name, whether it is rank 0) of this process, from the variables that its launcher sets."""
    if "TF_CONFIG" in os.environ:
        config = json.loads(os.environ["TF_CONFIG"])
        first = next((role for role in ("chief", "master") if role in config["cluster"]), "worker")
        name = f"{config['task']['type']}-{config['task']['index']}"
        return name, name == f"{first}-0"
    name = next((os.environ[name] for name in RANKS if name in os.environ), "0")
    return name, name == "0"


def with_files_of(work: str) -> None:
    """Called late, so that what starts this process imports no file of the author."""
    os.chdir(work)
    paths = [work, os.path.join(work, ".kftrain", "modules")]
    sys.path[:] = [*paths, *filter(None, sys.path)]
    given = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([*paths, given] if given else paths)


def call(function: Json) -> Any:
    arguments = json.loads(function["arguments"])
    module = importlib.import_module(function["module"])
    return getattr(module, function["name"])(*arguments["args"], **arguments["kwargs"])


class Parent:
    """Receives the record: in a file in this pod, or in frames from another pod."""

    def __init__(self, payload: Json, work: str, name: str) -> None:
        self.name = name
        self.process = os.getpid()
        self.output = os.dup(1) if payload["frames"] else -1  # the function may close its own
        # torchrun restarts its processes in the same places, but may change their numbers.
        file = f"rank-{os.environ.get('LOCAL_RANK', name)}.json"
        self.path = os.path.join(work, ".kftrain", file)

    def take(self, message: str, failed: float = 0) -> None:
        if os.getpid() != self.process:  # a fork, which has also returned from the function
            return
        data = json.dumps({"message": message, "failed": failed}).encode()
        if self.output >= 0:
            if message:
                self.print(base64.b64encode(zlib.compress(data, 9)))
            return
        with open(f"{self.path}.part", "wb") as file:
            file.write(data)
        os.replace(f"{self.path}.part", self.path)

    def print(self, text: bytes) -> None:
        parts = [text[start : start + PART] for start in range(0, len(text), PART)]
        frames = []
        for number, part in enumerate(parts):
            words = (self.name.encode(), zlib.crc32(text), number, len(parts), zlib.crc32(part))
            frames.append(b"[kftrain %s %08x %d/%d %08x %s]\n" % (*words, part))
        # mpirun may cut a frame, since it passes on 4096 bytes at most, with other output in
        # between. Hence the pauses, and each frame several times.
        for frame in [*frames, *frames[::-1], *frames]:
            os.write(self.output, frame)
            time.sleep(PAUSE)


def told(header: Json, text: str = "") -> str:
    """As much as fits: the beginning and the end of a long text."""
    line = f"KFTRAIN {json.dumps(header, ensure_ascii=False)}\n"
    head, body = line.encode("utf-8", "replace"), text.encode("utf-8", "replace")
    room = LIMIT - len(head)
    if len(body) > room:
        body = body[: room // 3] + b"\n...\n" + body[room // 3 + 5 - room :]
    return (head + body).decode("utf-8", "ignore")


# What it raises


def raised(error: BaseException, function: Json, fatal: list[str], name: str) -> tuple[Json, str]:
    """(header, traceback)"""
    shorten_chain(error)
    shown = traceback.TracebackException.from_exception(error)
    tidy(shown, function)
    kinds = {kind.__name__ for kind in type(error).__mro__}
    kinds |= {f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__}
    text = text_of(error)[:400]
    if isinstance(error, SyntaxError):
        text += f" (Python {sys.version.split()[0]} here, {function['python']} in Airflow)"
    header = {
        "type": type(error).__name__[:100],
        "text": text,
        "rank": name,
        "time": time.time(),
        "fatal": bool(kinds.intersection(fatal)),
    }
    return header, "".join(shown.format()).strip()


def text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as another:
        return f"(its message cannot be read: {type(another).__name__})"


def shorten_chain(error: BaseException) -> None:
    """Python before 3.11 fails on very long chains."""
    link: BaseException | None = error
    for _ in range(LONGEST_CHAIN):
        link = link and (link.__cause__ or link.__context__)
    if link:
        link.__cause__ = link.__context__ = None


def tidy(shown: traceback.TracebackException, function: Json) -> None:
    """Removes the frames of this file, and restores the name of the DAG file."""
    own = ("<kftrain>", importlib.__file__)
    module = f"/.kftrain/modules/{function['module']}.py"
    waiting = [shown]
    while waiting:
        one = waiting.pop()
        kept = [line for line in one.stack if line.filename not in own]
        one.stack[:] = [line for line in kept if not line.filename.startswith("<frozen importlib")]
        for line in (*one.stack, one):
            if (getattr(line, "filename", None) or "").endswith(module):
                line.filename = function["file"]  # that of a syntax error, too
        others = (one.__cause__, one.__context__, *(getattr(one, "exceptions", None) or ()))
        waiting += [other for other in others if other is not None]


# What it returns


def returned(value: Any) -> str:
    try:
        text = json.dumps(plain("result", value))
    except RecursionError:
        return told({"problem": "it is nested too deeply"})
    except Exception as error:
        return told({"problem": text_of(error)[:400]})
    said = f'KFTRAIN {{"value": {text}}}'
    if len(said) > LIMIT:
        packed = base64.b64encode(zlib.compress(text.encode(), 9)).decode()
        said = f'KFTRAIN {{"packed": "{packed}"}}'
    if len(said) > LIMIT:
        sizes = f"{len(text)} bytes in JSON, {len(packed)} compressed; about {LIMIT} fit"
        advice = "Write it to a store, and return its location"
        return told({"problem": f"it is too large: {sizes}. {advice}"})
    return said


def plain(where: str, value: Any) -> Json:
    """The value in JSON's own types. Raises ValueError with the path of a part that has none."""
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        value = value.item()  # a number of numpy or torch
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int) and -(2**63) <= value < 2**64:
        return int(value)
    if isinstance(value, float) and value - value == 0:
        return float(value)
    if isinstance(value, (int, float)):
        shown = f"of {value.bit_length()} bits" if isinstance(value, int) else str(value)
        raise ValueError(f"{where} is {shown}, which Airflow cannot store: return a string")
    if isinstance(value, (list, tuple)):
        return [plain(f"{where}[{number}]", item) for number, item in enumerate(value)]
    if not isinstance(value, dict):
        kind = f"{type(value).__module__}.{type(value).__qualname__}".replace("builtins.", "")
        raise ValueError(f"{where} is of type {kind}: return numbers, strings, lists and dicts")
    for key in value:
        if not isinstance(key, str):
            raise ValueError(f"{where} has the key {key!r}: use strings as keys")
    return {key: plain(f"{where}[{key!r}]", item) for key, item in value.items()}
