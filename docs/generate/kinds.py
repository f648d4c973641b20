"""kinds.md, from the table of kinds."""

from __future__ import annotations

from airflow_kftrain.kinds import KINDS, JobKind

OPERATORS = {
    "PyTorchJob": "`PyTorchJobOperator`",
    "TFJob": "`TFJobOperator`",
    "MPIJob": "`MPIJobOperator`, `HorovodJobOperator`",
    "TrainJob": "`TrainJobOperator`",
    "Job": "`PyTorchJobOperator` with one elastic node",
}

HEAD = """# Kinds of job

Made by `make docs` from the table in `airflow_kftrain/kinds.py`; do not edit by hand.

Every kind is watched, ended and reported on in the same way. Those without an operator of their own
are given as a manifest, to `TrainingJobOperator`.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *_overview(), "", *(line for kind in KINDS for line in _section(kind))])


def _overview() -> list[str]:
    lines = [
        "| kind | apiVersion | works on it | Airflow operator | roles |",
        "| --- | --- | --- | --- | --- |",
    ]
    for kind in KINDS:
        roles = ", ".join(role.name for role in kind.roles)
        operator = OPERATORS.get(kind.kind, "`TrainingJobOperator`")
        lines.append(
            f"| {kind.kind} | {kind.api_version} | {kind.operator} | {operator} | {roles} |"
        )
    return lines


def _section(kind: JobKind) -> list[str]:
    return [
        f"## {kind.kind} ({kind.api_version})",
        "",
        *(f"* {name}: {text}" for name, text in _facts(kind).items() if text),
        "",
    ]


def _facts(kind: JobKind) -> dict[str, str]:
    has = list(kind.run_policy)
    lacks = [name for name in _all_policy_fields() if name not in has]
    needed = [role.name for role in kind.roles if role.needed]
    return {
        "main container": f"`{kind.container}`" + (" (demanded)" if kind.container_needed else ""),
        "needed roles": ", ".join(needed),
        "`/dev/shm` in memory": "by default, unless the manifest is raw"
        if kind.shared_memory
        else "",
        "run policy": _code(has),
        "refused in a run policy": _code(lacks),
        "restart policies": _code(kind.restart_policies),
        "`backoff_limit` counts": kind.backoff_counts if "backoff_limit" in has else "",
        "default `ttl`": "a day" if kind.ttl_default else "",
        "deadline on each pod too": "yes" if kind.pod_deadline else "",
        "all pods": f"`-l {kind.selectors.pods}`",
        "leader": f"`-l {kind.selectors.leader}`" if kind.selectors.leader else "its only pod",
        "left at the end": kind.leaves,
    }


def _all_policy_fields() -> list[str]:
    return list(dict.fromkeys(name for kind in KINDS for name in kind.run_policy))


def _code(words: list[str] | tuple[str, ...]) -> str:
    return ", ".join(f"`{word}`" for word in words)
