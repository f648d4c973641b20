"""Elastic: settings of torchrun, for jobs whose number of nodes may change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from airflow_kftrain.errors import InvalidSpec
from airflow_kftrain.specs.later import LATER, any_later
from airflow_kftrain.specs.nouns import answering, check_fields, check_noun
from airflow_kftrain.specs.shapes import check_of
from airflow_kftrain.specs.values import positive, seconds, text, whole_number

_PROCESSES = ("auto", "cpu", "gpu")


@answering
class Elastic(NamedTuple):
    """Run the command under torchrun on `nodes` pods. A single node becomes a plain Kubernetes Job,
    which needs no training operator."""

    nodes: int | str | None = None
    """A number or "MIN:MAX". Alternatively use `min_nodes` and `max_nodes`."""
    min_nodes: int | str | None = None
    max_nodes: int | str | None = None
    nproc_per_node: int | str = 1
    """Processes per node: a number, "gpu", "cpu" or "auto"."""
    max_restarts: int | str | None = None
    """How often torchrun restarts all processes after one has failed; torchrun's default is 0."""
    rdzv_id: str | None = None
    """Id of the rendezvous; by default the job's name. torchrun's own default is the same for all
    jobs."""
    rdzv_conf: Mapping[str, str | int] | None = None
    """More settings of the rendezvous, as in torchrun's --rdzv-conf."""
    join_timeout: timedelta = timedelta(minutes=15)
    """How long the nodes wait for each other. torch's default, 10 minutes, is short for large
    images."""
    read_timeout: timedelta = timedelta(minutes=15)
    """How long a node waits for the node that hosts the rendezvous; torch's default is a minute."""
    metrics: Sequence[Any] | None = None
    """Metrics of a HorizontalPodAutoscaler, which the operator then creates."""


def check_elastic(field: str, elastic: Any) -> Any:
    """The settings with `min_nodes` and `max_nodes` as numbers; `nodes` is split into these."""
    if elastic is LATER:
        return elastic
    checked = check_fields(field, check_noun(field, elastic, Elastic), _CHECKS)
    least, most = _range(field, checked)
    if not any_later((least, most)) and least > most:
        if checked.nodes is None:
            raise InvalidSpec(f"{field}.min_nodes", f"more than max_nodes, {most}", value=least)
        raise InvalidSpec(
            f"{field}.nodes",
            "has a minimum above its maximum",
            value=checked.nodes,
            advice="Write 'MIN:MAX'.",
        )
    return checked._replace(nodes=None, min_nodes=least, max_nodes=most)


def _range(field: str, checked: Elastic) -> tuple[Any, Any]:
    if checked.nodes is None:
        if checked.min_nodes is None or checked.max_nodes is None:
            raise InvalidSpec(
                field,
                "must set the number of nodes",
                advice="Set nodes, or min_nodes and max_nodes: nodes=1 is what Flyte's Elastic() "
                "means.",
            )
        return checked.min_nodes, checked.max_nodes
    if checked.min_nodes is not None or checked.max_nodes is not None:
        raise InvalidSpec(
            field, "has both nodes and min_nodes or max_nodes", advice="Use one or the other."
        )
    return _least_and_most(f"{field}.nodes", checked.nodes)


def _least_and_most(field: str, nodes: Any) -> tuple[Any, Any]:
    if nodes is LATER:
        return nodes, nodes
    least, colon, most = str(nodes).partition(":")
    try:
        smallest = positive(field, least)
        return smallest, positive(field, most) if colon else smallest
    except InvalidSpec as error:
        raise InvalidSpec(
            field, "must be a number or 'MIN:MAX', each at least 1", value=nodes
        ) from error


def _processes(field: str, value: Any) -> Any:
    if value is LATER or value in _PROCESSES:
        return value
    try:
        return positive(field, value)
    except InvalidSpec as error:
        raise InvalidSpec(
            field,
            f"must be a number of at least 1, or one of {', '.join(_PROCESSES)}",
            value=value,
        ) from error


def _settings(field: str, value: Any) -> Any:
    if value is LATER:
        return value
    if not isinstance(value, Mapping):
        raise InvalidSpec(field, "must be a mapping", value=value)
    return {key: _setting(f"{field}[{key!r}]", key, item) for key, item in value.items()}


def _setting(field: str, key: Any, value: Any) -> Any:
    # torchrun reads all settings from one string, key=value,key=value.
    if not isinstance(key, str) or not key or set(key) & set(",="):
        raise InvalidSpec(field, "must have a name without ',' and '='")
    if value is LATER:
        return value
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        written = str(value)
        if written and "," not in written:
            return written
    raise InvalidSpec(field, "must be a number, or text without ','", value=value)


_CHECKS = {
    "min_nodes": positive,
    "max_nodes": positive,
    "nproc_per_node": _processes,
    "max_restarts": whole_number,
    "rdzv_id": text,
    "rdzv_conf": _settings,
    "join_timeout": seconds,
    "read_timeout": seconds,
    "metrics": check_of("[mapping]"),
}
