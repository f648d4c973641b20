"""Names and label values: valid, readable, and different for different inputs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from airflow_kftrain.kinds import JobKind
from airflow_kftrain.specs.later import LATER
from airflow_kftrain.specs.values import LABEL_VALUE

LONGEST = 63
"""The longest name of a Service, hostname of a pod, or label value."""

_UNIQUE = 10
_ASSUMED_COUNT = 1000


def job_name(kind: JobKind, spec: Mapping[str, Any], parts: tuple[str, ...], unique: str) -> str:
    """A name made of readable `parts` and a hash of `unique`, so the same `unique` always gives the
    same name. It leaves room for the suffixes of the operator."""
    room = LONGEST - longest_suffix(kind, spec) - _UNIQUE - 1
    return f"{slug(parts, room)}-{short_hash(unique, _UNIQUE)}"


def longest_suffix(kind: JobKind, spec: Mapping[str, Any]) -> int:
    """The length of the longest suffix that the operator appends, such as `-worker-12`."""
    replicas = spec.get(kind.replicas_key) if kind.replicas_key else None
    # An elastic job may grow.
    elastic = spec.get(kind.elastic_key) if kind.elastic_key else None
    most = _known(elastic.get("maxReplicas", 0)) if isinstance(elastic, Mapping) else 0
    lengths = [0]
    for role in kind.roles:
        count: Any = _ASSUMED_COUNT
        if isinstance(replicas, Mapping):
            if role.name not in replicas:
                continue
            group = replicas[role.name]
            own = group.get("replicas", 1) if isinstance(group, Mapping) else LATER
            count = max(_known(own), most)
        elif kind.template_key:
            # Only an indexed Job has numbered pods, but a shorter name does no harm.
            count = _known(spec.get("completions") or 1)
        last = max(count - 1, 0)
        pod = role.pod.format(job="", role=role.name.lower(), index=last)
        lengths.append(len(pod))
    return max(lengths)


def _known(count: Any) -> Any:
    return _ASSUMED_COUNT if count is LATER else count


def slug(parts: tuple[str, ...], room: int) -> str:
    """Readable and valid in DNS-1035. If it is too long, the earlier parts are shortened first,
    since the last one (the task) says most."""
    words = [re.sub(r"[^a-z0-9]+", "-", part.lower()).strip("-") for part in parts]
    words = [word for word in words if word]
    last = words[-1] if words else "job"
    first = "-".join(words[:-1])[: max(room - len(last) - 1, 0)].strip("-")
    joined = f"{first}-{last}" if first else last
    if not joined[0].isalpha():
        joined = f"j-{joined}"
    return joined[:room].strip("-")


def label_safe(text: str) -> str:
    """The text itself if it is a valid label value; otherwise its valid characters and a hash, so
    that different texts stay different."""
    if LABEL_VALUE.fullmatch(text):
        return text
    legal = re.sub(r"[^-_.A-Za-z0-9]+", "-", text).strip("-_.")
    return f"{legal[: LONGEST - _UNIQUE - 1].strip('-_.')}-{short_hash(text, _UNIQUE)}".lstrip("-")


def short_hash(text: str, length: int) -> str:
    import hashlib  # loads OpenSSL, which is not needed to parse a DAG file

    return hashlib.sha256(text.encode()).hexdigest()[:length]
