"""Checks the parameters of an operator when the DAG file is parsed."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_kftrain.manifests import check_given
from airflow_kftrain.operators.settings import check_settings
from airflow_kftrain.specs.later import LATER, mask

if TYPE_CHECKING:
    from airflow_kftrain.specs.job import JobSpec
    from airflow_kftrain.specs.raw_manifest import RawManifest

_PLAIN = frozenset({str, int, float, bool, type(None), timedelta, type(LATER)})
_MOST = 1_000
_passed: dict[Hashable, list[str]] = {}
"""What passed, and what its author is warned of. Many tasks of a DAG file often have the same
parameters, and checking them again would take longer than all else that parsing does."""


def check_parameters(
    spec_type: type[JobSpec] | type[RawManifest],
    job: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> list[str]:
    """Returns what to warn the author of. Raises InvalidSpec."""
    try:
        key = (spec_type, _key(dict(job)), _key(dict(settings)))
    except TypeError:
        return _check(spec_type, job, settings)
    if key not in _passed:
        if len(_passed) >= _MOST:
            _passed.clear()
        _passed[key] = _check(spec_type, job, settings)
    return _passed[key]


def _check(
    spec_type: type[JobSpec] | type[RawManifest],
    job: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> list[str]:
    check_settings(mask(dict(settings)))
    return check_given(spec_type, job)


def _key(value: Any) -> Hashable:
    """Equal for values that are alike, nouns included. Raises TypeError for objects whose content
    may change."""
    kind = type(value)
    if kind in _PLAIN:
        return kind, value  # True is equal to 1
    if kind is dict:
        return dict, tuple([(_key(name), _key(item)) for name, item in value.items()])
    if kind is list or isinstance(value, tuple):
        return kind, tuple([_key(item) for item in value])
    raise TypeError(kind)
