"""Parameters that an operator does not have, and those of Airflow that look like ours."""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Mapping
from functools import cache
from typing import Any

from airflow_kftrain.airflow_compat import has_queues
from airflow_kftrain.errors import InvalidSpec


def refuse_unknown(operator: type, given: Mapping[str, Any]) -> None:
    """Raise InvalidSpec for what is no parameter of the operator, nor of Airflow's own."""
    from airflow_kftrain.specs.unknown_names import refuse_unknown

    name = getattr(operator, "custom_operator_name", operator.__name__)
    refuse_unknown(name, parameters_of(operator), given)


@cache
def parameters_of(operator: type) -> tuple[str, ...]:
    """By name, the operator's own before Airflow's."""
    found: dict[str, None] = {}
    for base in operator.__mro__:
        if "__init__" in vars(base) and base is not object:
            code = getattr(inspect.unwrap(vars(base)["__init__"]), "__code__", None)
            if code is not None:
                found |= dict.fromkeys(
                    code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
                )
    return tuple(found)


def refuse_resources(operator: type) -> None:
    """`resources` is of the worker, and nobody writes it to an operator that runs pods and means
    that. What default_args say for all tasks of a DAG does not come here."""
    of_ours = "container_resources" in parameters_of(operator)
    raise InvalidSpec(
        "resources",
        "is a parameter of Airflow, for its worker and not for the pods",
        advice="Write container_resources=Resources(...)."
        if of_ours
        else "Write resources of the pods into the manifest.",
    )


def check_queue() -> None:
    """Airflow's `queue` is what an author means if there are queues. Where it has no effect, he may
    have meant Kueue's."""
    if not has_queues():
        warn_author(
            "queue: is a parameter of Airflow, which has no effect with its LocalExecutor. For the "
            "queue of Kueue, write queue_name."
        )


def warn_author(text: str) -> None:
    """A warning at the line of the DAG file, or of whatever makes the operator."""
    level, frame = 1, sys._getframe(0)
    while frame.f_back is not None and _is_machinery(frame.f_globals.get("__name__", "")):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, UserWarning, stacklevel=level)


def _is_machinery(module: str) -> bool:
    return module.partition(".")[0] in ("airflow", "airflow_kftrain", "functools")


class AnsweringPartial:
    """What `.partial()` returns, with an answer to what `.expand()` is given."""

    def __init__(self, operator: type, partial: Any) -> None:
        self._operator = operator
        self._partial = partial

    def __getattr__(self, name: str) -> Any:
        return getattr(self._partial, name)

    def expand(self, **mapped: Any) -> Any:
        try:
            return self._partial.expand(**mapped)
        except TypeError:
            refuse_unknown(self._operator, mapped)
            raise


def answering_partial(operator: type, partial: Any, given: Mapping[str, Any]) -> AnsweringPartial:
    """Airflow's `.partial()` with the checks of the constructor, which sees a mapped task only when
    that runs."""
    if given.get("resources") is not None:
        refuse_resources(operator)
    no_queue_name = given.get("queue_name") is None and "queue_name" in parameters_of(operator)
    if "queue" in given and no_queue_name:
        check_queue()
    try:
        return AnsweringPartial(operator, partial(**given))
    except TypeError:
        refuse_unknown(operator, given)
        raise
