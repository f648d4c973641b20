"""Runs work in a forked process that has everything loaded that this one has, like Airflow's
workers and its DAG processor."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def processes(count: int) -> ProcessPoolExecutor:
    """All are forked at the first call, before it starts a thread."""
    return ProcessPoolExecutor(count, mp_context=get_context("fork"))


def forked(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The result, from a process that then ends."""
    with processes(1) as alone:
        return alone.submit(work, *args, **kwargs).result()
