"""Work in a process of its own that has what this one has loaded, as Airflow's workers and
DAG-processor work: they fork."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def processes(count: int) -> ProcessPoolExecutor:
    """All of them are forked at the first call, before it starts a thread."""
    return ProcessPoolExecutor(count, mp_context=get_context("fork"))


def forked(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What it returns, from a process that ends then."""
    with processes(1) as alone:
        return alone.submit(work, *args, **kwargs).result()
