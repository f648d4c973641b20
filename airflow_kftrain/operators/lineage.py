"""Says in the events of a task's assets which training has made them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_kftrain.airflow_compat import bundle_of, stored_value
from airflow_kftrain.job_state import read_mapping
from airflow_kftrain.manifests.places import env_holders
from airflow_kftrain.messages import SHOWN_KEY, WatchOrder

if TYPE_CHECKING:
    from airflow.sdk.types import Logger

_LARGEST_RESULT = 1024
"""Bytes of JSON. What is larger stays in the task's return value."""


def tell_assets(
    context: Mapping[str, Any],
    order: WatchOrder,
    found: Mapping[str, Any] | None,
    value: Any,
    log: Logger,
) -> None:
    """Adds `kftrain` to the extra of each outlet's event, unless its author has. Best effort: the
    training has succeeded."""
    from airflow.sdk import Asset

    assets = [asset for asset in context["task"].outlets if isinstance(asset, Asset)]
    if not assets:
        return
    try:
        origin = _origin(context["ti"], order, found, value)
        for asset in assets:
            context["outlet_events"][asset].extra.setdefault("kftrain", origin)
    except Exception as error:  # noqa: BLE001  # Airflow's own, of any kind
        log.warning("The events of the task's assets do not name the training: %s", error)


def _origin(
    instance: Any, order: WatchOrder, found: Mapping[str, Any] | None, value: Any
) -> dict[str, Any]:
    shown = read_mapping(stored_value(instance, SHOWN_KEY)) if order.progress else {}
    latest = read_mapping(read_mapping(shown.get("progress")).get("latest"))
    name, version = bundle_of(instance)
    origin = {
        "job": order.job._asdict(),
        "image": _image(order, found),
        "result": value if len(json.dumps(value)) <= _LARGEST_RESULT else None,
        "metrics": dict(latest) if shown.get("uid") == order.job.uid else None,
        "bundle": {"name": name, "version": version} if name else None,
    }
    return {name: part for name, part in origin.items() if part not in (None, "", {})}


def _image(order: WatchOrder, found: Mapping[str, Any] | None) -> str:
    """That of the leader, if the job names it and still exists."""
    holders = env_holders(order.kind, dict(found)) if found else iter(())
    return str(next((holder.get("image") for holder in holders), None) or "")
