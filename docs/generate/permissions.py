"""permissions.md: a page written by hand, with the Role that follows from the table of kinds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from airflow_kftrain.kinds import KINDS

_BY_HAND = Path(__file__).with_suffix(".md")
_OF_JOBS = "create, get, list, watch, patch, delete"
_BESIDE_JOBS = {"pods": "list, watch", "pods/log": "get", "events": "list"}


def page() -> str:
    """The whole page."""
    text = _BY_HAND.read_text(encoding="utf-8")
    assert "{role}" in text
    return text.replace("{role}", "\n".join(_role()))


def _role() -> Iterator[str]:
    yield "apiVersion: rbac.authorization.k8s.io/v1"
    yield "kind: Role"
    yield "metadata: {name: airflow-kftrain, namespace: ml}"
    yield "rules:"
    for group in dict.fromkeys(kind.group for kind in KINDS):
        plurals = ", ".join(dict.fromkeys(kind.plural for kind in KINDS if kind.group == group))
        yield from _rule(group, plurals, _OF_JOBS)
    for resource, verbs in _BESIDE_JOBS.items():
        yield from _rule('""', resource, verbs)


def _rule(group: str, resources: str, verbs: str) -> list[str]:
    return [f"- apiGroups: [{group}]", f"  resources: [{resources}]", f"  verbs: [{verbs}]"]
