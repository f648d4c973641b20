"""Code: what a job brings along in addition to its image. Function: a Python function that the job
runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from airflow_kftrain.errors import InvalidSpec
from airflow_kftrain.specs.later import LATER
from airflow_kftrain.specs.nouns import answering, check_fields, check_noun
from airflow_kftrain.specs.values import text, text_list

_EXCEPTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


@answering
class Code(NamedTuple):
    """Files and packages that the pods get when they start, so a change of them needs no new image.
    The limit is 32 KiB, compressed, for everything together."""

    files: Sequence[str] | None = None
    """Files and folders, by their paths relative to the DAG file. In the pods they are in the
    working directory, which is the first place where imports look."""
    requirements: Sequence[str] | None = None
    """Packages that pip installs in each pod before the command starts. Prefer to put them into the
    image: installing takes time in each pod, and may bring another version tomorrow."""
    pip_args: Sequence[str] | None = None
    """More arguments of `pip install`, such as ["--index-url", "https://pypi.example.com/simple"]."""
    python: str = "python3"
    """The name of Python in the image, 3.8 or later."""
    fatal: Sequence[str] | None = None
    """Names of exceptions, such as ["ValueError"]. If a function raises one of them, or a subclass,
    the task fails without a retry."""


class Function(NamedTuple):
    """A function as it is sent to the pods: its source, or the name of its module."""

    name: str
    module: str
    """In the pod."""
    source: str = ""
    """The whole source of the module, with the line numbers of the DAG file; "" if the image has
    the module."""
    file: str = ""
    """The DAG file, for tracebacks."""
    arguments: str = '{"args": [], "kwargs": {}}'
    """In JSON."""
    stacks: bool = False
    """Whether SIGTERM makes it write the stacks of its threads."""


def check_code(field: str, code: Any) -> Any:
    if code is LATER:
        return code
    return check_fields(field, check_noun(field, code, Code), _CODE_CHECKS)


def check_function(field: str, function: Any) -> Any:
    return function if function is LATER else check_noun(field, function, Function)


def _relative(field: str, path: Any) -> Any:
    if path is LATER:
        return path
    parts = text(field, path).replace("\\", "/").split("/")
    if parts[0] == "" or ".." in parts:
        raise InvalidSpec(
            field,
            "must be a path below the folder of the DAG file",
            value=path,
            advice="Put other files into the image or on a volume.",
        )
    return path


def _files(field: str, paths: Any) -> Any:
    checked = text_list(field, paths)
    if checked is LATER:
        return checked
    return [_relative(f"{field}[{number}]", path) for number, path in enumerate(checked)]


def _exceptions(field: str, names: Any) -> Any:
    checked = text_list(field, names)
    for number, name in enumerate(() if checked is LATER else checked):
        if name is not LATER and not _EXCEPTION.fullmatch(name):
            raise InvalidSpec(
                f"{field}[{number}]",
                "must be the name of an exception",
                value=name,
                advice="For example: 'ValueError' or 'torch.cuda.OutOfMemoryError'.",
            )
    return checked


_CODE_CHECKS = {
    "files": _files,
    "requirements": text_list,
    "pip_args": text_list,
    "python": text,
    "fatal": _exceptions,
}
