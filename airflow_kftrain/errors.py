"""Every error of this package, in one tree.

KfTrainError
├── InvalidSpec            what the author wrote cannot work; nothing has been created
│   └── UnknownKind        the manifest names a kind or version that this package does not know
└── ClusterError           a call to the cluster was refused, or nobody answered
    ├── BadConnection      the Airflow connection is not there, or cannot be used
    ├── Unreachable        no connection: name, port, certificate, time
    ├── Unauthorized       401: the credentials are not taken
    ├── Forbidden          403: a right is missing
    ├── Refused            400, 413, 422, a webhook's 403: what was sent cannot work as it is
    ├── NotFound           404: no such object, or no such namespace
    ├── NotServed          404: the cluster does not know the kind; its operator is not installed
    ├── Conflict           409: it is there already, or has changed in between
    └── Expired            410: the server has forgotten where a list or a watch stood

The operators translate these into Airflow's exceptions, in one place. Nothing here imports
anything, so that every layer may raise them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

_LONGEST_VALUE = 80
_DEEPEST = 3


class _Value(Enum):
    # An enumeration, since its members stay the same when an error is pickled.
    NOT_GIVEN = "not given"


class KfTrainError(Exception):
    """Base of all errors of this package."""

    retryable = False
    """Whether the same may succeed later, with nothing mended in between."""


class InvalidSpec(KfTrainError):
    """A wrong value: what is wrong, in which field as the author wrote it, and what to do.

    `value` is shown cut, and only the outline of what holds others; leave it out where it may be
    a secret (the value of an environment variable, say).
    """

    def __init__(
        self, field: str, problem: str, *, advice: str = "", value: object = _Value.NOT_GIVEN
    ) -> None:
        super().__init__(field, problem)
        self.field = field
        self.problem = problem
        self.advice = advice
        self.value = value

    def __str__(self) -> str:
        got = "" if self.value is _Value.NOT_GIVEN else f", got {shown(self.value)}"
        advice = f" {self.advice}" if self.advice else ""
        where = f"{self.field}: " if self.field else ""
        return f"{where}{self.problem}{got}.{advice}"

    def at(self, field: str) -> InvalidSpec:
        """The same error, told by another name of the field."""
        return type(self)(field, self.problem, advice=self.advice, value=self.value)


class UnknownKind(InvalidSpec):
    """The manifest's apiVersion and kind are not in the table of kinds."""


class ClusterError(KfTrainError):
    """A call that the cluster did not do: what was tried, why not, and what to do about it.

    All other answers (429, 5xx) are of this class itself.
    """

    retryable = True

    def __init__(
        self, doing: str, problem: str, *, advice: str = "", code: int = 0, reason: str = ""
    ) -> None:
        super().__init__(doing, problem)
        self.doing = doing
        """As in "create PyTorchJob ml/train-1"."""
        self.problem = problem
        self.advice = advice
        self.code = code
        """Of HTTP; 0 where nobody answered."""
        self.reason = reason
        """Kubernetes' word: AlreadyExists."""
        self.retry_after: float | None = None
        """Seconds, where the server says so."""

    def __str__(self) -> str:
        advice = f" {self.advice}" if self.advice else ""
        return f"cannot {self.doing}: {self.problem.rstrip('.')}.{advice}"


class BadConnection(ClusterError):
    """What the Airflow connection says of the cluster cannot be used; nothing was sent."""

    retryable = False


class Unreachable(ClusterError):
    """Nobody answered, or not in the words of an API server."""


class Unauthorized(ClusterError):
    """The credentials are not taken. They may be renewed in between, so it may succeed later."""


class Forbidden(ClusterError):
    """A right is missing: verb and resource are named."""

    retryable = False


class Refused(ClusterError):
    """What was sent cannot work as it is."""

    retryable = False


class NotFound(ClusterError):
    """There is no such object, or no such namespace."""

    retryable = False


class NotServed(ClusterError):
    """The cluster does not know the kind."""

    retryable = False


class Conflict(ClusterError):
    """It is there already (reason AlreadyExists), or has changed since it was read."""

    retryable = False


class Expired(ClusterError):
    """The server has forgotten where a list or a watch stood: start anew."""

    retryable = False


def shown(value: object) -> str:
    """A value as an error may show it: one line, not too long, and cut in the middle, since the end
    of a path says which file it is. What stands inside a mapping or an object is not shown, since
    it may be a secret."""
    text, half = _outline(value), _LONGEST_VALUE // 2
    return text if len(text) <= _LONGEST_VALUE else f"{text[: half - 3]}...{text[-half:]}"


def _outline(value: object, depth: int = 0) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: ..." for key in value) + "}"
    if hasattr(value, "_fields") or hasattr(value, "openapi_types"):
        return f"{type(value).__name__}(...)"
    if isinstance(value, list | tuple):
        if depth == _DEEPEST:
            return "[...]"
        return "[" + ", ".join(_outline(item, depth + 1) for item in value) + "]"
    return repr(value)
