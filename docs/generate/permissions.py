"""Generates permissions.md from a handwritten page and the permissions in the code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from airflow_kftrain.hooks.permissions import of_all_kinds, of_kind, of_queues, role_rules
from airflow_kftrain.kinds import PYTORCH_JOB

_BY_HAND = Path(__file__).with_suffix(".md")


def page() -> str:
    """The whole page."""
    text = _BY_HAND.read_text(encoding="utf-8")
    for name, lines in {"rules": _rules(), "rights": _rights()}.items():
        assert f"{{{name}}}" in text
        text = text.replace(f"{{{name}}}", "\n".join(lines))
    return text


def _rules() -> Iterator[str]:
    """Resources of one group with the same verbs share a rule."""
    together: dict[tuple[str, str], list[str]] = {}
    for rule in role_rules():
        (group,) = rule["apiGroups"]
        together.setdefault((group, ", ".join(rule["verbs"])), []).extend(rule["resources"])
    for (group, verbs), resources in together.items():
        yield "- apiGroups: [{}]".format(group or '""')
        yield f"  resources: [{', '.join(dict.fromkeys(resources))}]"
        yield f"  verbs: [{verbs}]"


def _rights() -> Iterator[str]:
    for right in (*of_kind(PYTORCH_JOB), *of_all_kinds(), *of_queues()):
        resource = "the job" if right.resource == PYTORCH_JOB.plural else right.resource
        needed = "yes" if right.needed else "no: everything works without it, but less well"
        yield f"| {right.verb} | {resource} | {right.why} | {needed} |"
