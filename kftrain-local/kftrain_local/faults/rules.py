"""Rules of the fault proxy: which calls of the Kubernetes API are hit, and what happens to them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple
from urllib.parse import unquote

from kftrain_local.errors import LocalError

_REASONS = {
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
_VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "*")
_VERB_OF = {"HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class BadFault(LocalError):
    """A rule or a command that cannot be understood."""


class Call(NamedTuple):
    """A call as RBAC names it: "create", "pods/binding". A call that is not about a resource is
    named by its path."""

    verb: str
    resource: str


def call_of(method: str, path: str, query: Mapping[str, str]) -> Call:
    words = [unquote(word) for word in path.strip("/").split("/")]
    words = words[{"api": 2, "apis": 3}.get(words[0], len(words)) :]
    if words[:1] == ["namespaces"] and words[2:] and words[2] not in ("status", "finalize"):
        words = words[2:]
    if not words:
        return Call(method.lower(), path)
    verb = _VERB_OF.get(method, method.lower())
    if len(words) == 1:
        watch = query.get("watch", "false").lower() not in ("false", "0")
        of_all = {"get": "watch" if watch else "list", "delete": "deletecollection"}
        verb = of_all.get(verb, verb)
    return Call(verb, "/".join(words[:1] + words[2:3]))


@dataclass(eq=False)
class Fault:
    """What happens to which calls. Of the matching calls the first is hit, and then as many as the
    share says: with 0.5 every second one, exactly 50 of 100. After `times` hits the rule has no
    effect."""

    verb: str = "*"
    resource: str = "*"
    share: float = 1.0
    times: float = math.inf
    code: int = 0
    retry_after: int = 1
    delay: float = 0.0
    cut: float = math.inf
    seen: int = field(default=0, init=False)
    hits: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        """Raises BadFault."""
        for name, good, wanted in (
            ("verb", self.verb in _VERBS, f"one of {' '.join(_VERBS)}"),
            ("resource", self.resource == self.resource.lower(), "a plural, such as pytorchjobs"),
            ("share", 0 < self.share <= 1, "more than 0, at most 1"),
            ("times", self.times >= 1, "at least 1"),
            ("code", self.code in (0, *_REASONS), f"one of {' '.join(map(str, _REASONS))}"),
            ("retry_after", self.retry_after >= 0, "whole seconds"),
            ("delay", 0 <= self.delay < math.inf, "seconds"),
            ("cut", self.cut >= 0, "seconds"),
        ):
            if not good:
                raise BadFault(f"{name}={getattr(self, name)}: must be {wanted}")
        if not (self.code or self.delay) and self.cut == math.inf:
            raise BadFault("it has no effect; add code=, delay= or cut=")

    @classmethod
    def parse(cls, rule: str) -> Fault:
        """A rule as on the command line. Raises BadFault."""
        types = {each.name: str(each.type) for each in fields(cls) if each.init}
        given: dict[str, Any] = {}
        try:
            for word in rule.split():
                name, _, value = word.partition("=")
                if name not in types or name in given or not value:
                    raise BadFault(f"{word!r} is not one of {' '.join(f'{t}=' for t in types)}")
                given[name] = {"str": str, "int": int, "float": float}[types[name]](value)
            return cls(**given)
        except ValueError as error:
            raise BadFault(f"fault {rule!r}: {word!r} is not a number") from error
        except BadFault as error:
            raise BadFault(f"fault {rule!r}: {error}") from error

    def strikes(self, call: Call) -> bool:
        if self.verb not in ("*", call.verb) or self.resource not in ("*", call.resource):
            return False
        hit = self._due(self.seen) < self._due(self.seen + 1) and self.hits < self.times
        self.seen += 1
        self.hits += hit
        return hit

    def _due(self, calls: int) -> int:
        return math.ceil(calls * self.share - 1e-9)  # 10 times 0.3 must be 3


def status(code: int, retry_after: int) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "the fault proxy injects this error",
        "reason": _REASONS[code],
        "details": {"retryAfterSeconds": retry_after} if code == 429 else {},
        "code": code,
    }
