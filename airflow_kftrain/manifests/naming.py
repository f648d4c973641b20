"""Names and label values: valid, readable, and never cut so that two become one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from airflow_kftrain.kinds import JobKind
from airflow_kftrain.specs.values import LABEL_VALUE

LONGEST = 63
"""Longest name of a Service, a pod's host name, or a label value."""

_UNIQUE = 10
_ASSUMED_COUNT = 1000


def job_name(kind: JobKind, spec: Mapping[str, Any], parts: tuple[str, ...], unique: str) -> str:
    """A name made of readable `parts` and of a hash of `unique`, so that the same `unique` always
    gives the same name. There is room for what the operator appends."""
    room = LONGEST - longest_suffix(kind, spec) - _UNIQUE - 1
    return f"{slug(parts, room)}-{short_hash(unique, _UNIQUE)}"


def longest_suffix(kind: JobKind, spec: Mapping[str, Any]) -> int:
    """How much the longest name made from the job's is longer, such as `-worker-12`."""
    replicas = spec.get(kind.replicas_key) if kind.replicas_key else None
    # An elastic job may grow.
    most = (spec.get(kind.elastic_key) or {}).get("maxReplicas", 0) if kind.elastic_key else 0
    lengths = [0]
    for role in kind.roles:
        count: Any = _ASSUMED_COUNT
        if isinstance(replicas, Mapping):
            if role.name not in replicas:
                continue
            count = max(replicas[role.name].get("replicas", 1), most)
        elif kind.template_key:
            # Only of an indexed Job are they numbered, but a short name does no harm.
            count = spec.get("completions") or 1
        last = max(count - 1, 0)
        pod = role.pod.format(job="", role=role.name.lower(), index=last)
        lengths.append(len(pod))
    return max(lengths)


def slug(parts: tuple[str, ...], room: int) -> str:
    """Readable and DNS-1035 safe: where it is too long, the earlier parts give way first, since
    the last one (the task) says most."""
    words = [re.sub(r"[^a-z0-9]+", "-", part.lower()).strip("-") for part in parts]
    words = [word for word in words if word]
    last = words[-1] if words else "job"
    first = "-".join(words[:-1])[: max(room - len(last) - 1, 0)].strip("-")
    joined = f"{first}-{last}" if first else last
    if not joined[0].isalpha():
        joined = f"j-{joined}"
    return joined[:room].strip("-")


def label_safe(text: str) -> str:
    """The text itself where it may be a label value; otherwise what is legal of it, and a hash
    that keeps different texts apart."""
    if LABEL_VALUE.fullmatch(text):
        return text
    legal = re.sub(r"[^-_.A-Za-z0-9]+", "-", text).strip("-_.")
    return f"{legal[: LONGEST - _UNIQUE - 1].strip('-_.')}-{short_hash(text, _UNIQUE)}".lstrip("-")


def short_hash(text: str, length: int) -> str:
    import hashlib  # loads OpenSSL, which parsing a DAG file has no need of

    return hashlib.sha256(text.encode()).hexdigest()[:length]
