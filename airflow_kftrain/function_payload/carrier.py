"""Packs code, arguments and runner into one string, which is an annotation of the pod template.

A `downwardAPI` volume shows the annotation to the container as a file. This needs no permission and
no second object, so nothing can be left behind. The string has to stay small: the API server writes
the whole object with each change of its status, and sends it to everyone who watches it.
"""

from __future__ import annotations

import base64
import json
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from airflow_kftrain.errors import InvalidSpec
from airflow_kftrain.function_payload.packing import Packed, pack
from airflow_kftrain.specs.code import Code, Function

LIMIT = 32 * 1024
"""Bytes of the annotation: about 3,500 lines of Python."""
IN = "/kftrain/in"
WORK = "/kftrain/work"
PAYLOAD = f"{IN}/payload"
BOOT = (
    "import sys;sys.path[:]=filter(None,sys.path);import base64,json,os,zlib;"
    'os.path.exists(sys.argv[1]) or sys.exit("The code of the job is not mounted in this pod. '
    'Under a runtime with MPI a TrainJob needs mpirun=Mpirun().");'
    'exec(json.loads(zlib.decompress(base64.b64decode(open(sys.argv[1],"rb").read())))["runner"])'
)
"""A Python program that unpacks the runner from the payload, and starts it. It imports nothing from
the working directory, which has the files of the author."""


class Payload(NamedTuple):
    """The annotation, and a digest of its content."""

    text: str
    digest: str
    """It does not depend on the version of zlib or of the runner, nor on where the function is: the
    DAG file may be moved, and lines above the function may change."""


def runner_words(python: Any) -> list[Any]:
    """What is put in front of the author's command."""
    return [python, "-c", BOOT, PAYLOAD, WORK, "run"]


def rank_words(python: Any) -> list[Any]:
    """The command of a process that calls the function."""
    return [python, "-c", BOOT, PAYLOAD, WORK, "rank"]


@lru_cache(maxsize=1)
def programs() -> dict[str, str]:
    """The same bytes for all jobs."""
    here = Path(__file__).parent
    return {name: (here / f"{name}.py").read_text(encoding="utf-8") for name in ("runner", "rank")}


def make_payload(
    code: Code | None, function: Function | None, folder: str, *, frames: bool
) -> Payload:
    """`frames`: the ranks run in other pods than their parent. Raises InvalidSpec."""
    code = code or Code()
    import hashlib  # loads OpenSSL, which is not needed to parse a DAG file

    packed = pack("code.files", code.files or (), folder)
    content = _content(code, function, packed, frames)
    told = {**content, "function": function and _told(function)}
    digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:32]
    whole = {**content, **programs()}
    if function is not None and function.source:
        name = f".kftrain/modules/{function.module}.py"
        whole["files"] = {**content["files"], name: (function.source, "", False)}
        whole["function"] = {**content["function"], "source": ""}
    data = json.dumps(whole, sort_keys=True).encode()
    text = base64.b64encode(zlib.compress(data, 9)).decode()
    if len(text) > LIMIT:
        raise _too_large(len(text), packed, function)
    return Payload(text, digest)


def _content(code: Code, function: Function | None, packed: Packed, frames: bool) -> dict[str, Any]:
    from sys import version_info

    files: dict[str, tuple[str, str, bool]] = {
        name: (text, "", name in packed.executables) for name, text in packed.texts.items()
    }
    for name, data in packed.binaries.items():
        files[name] = ("", base64.b64encode(data).decode(), name in packed.executables)
    python = f"{version_info[0]}.{version_info[1]}"
    return {
        "files": files,
        "requirements": list(code.requirements or ()),
        "pip_args": list(code.pip_args or ()),
        "fatal": list(code.fatal or ()),
        "frames": frames,
        "function": function and {**function._asdict(), "python": python},
        "boot": [code.python, "-c", BOOT],
    }


def _told(function: Function) -> dict[str, str]:
    source = [line for line in function.source.splitlines() if line.strip()]
    return {"name": function.name, "source": "\n".join(source), "arguments": function.arguments}


def _too_large(size: int, packed: Packed, function: Function | None) -> InvalidSpec:
    sizes = packed.sizes()
    if function is not None:
        own = ((len(function.source), "the function"), (len(function.arguments), "its arguments"))
        sizes = sorted([*sizes, *own], key=lambda item: -item[0])
    largest = ", ".join(f"{name} ({length:,} bytes)" for length, name in sizes[:5])
    return InvalidSpec(
        "code",
        f"is too large: {size:,} bytes compressed; the limit is {LIMIT:,}. "
        f"The largest parts are {largest}",
        advice="Put large files into the image, fetch them with git-sync, or mount a volume.",
    )
