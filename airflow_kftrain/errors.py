"""All errors of this package.

KfTrainError
├── InvalidSpec            a parameter or a manifest is wrong; nothing has been created
│   └── UnknownKind        the manifest names a kind or version that this package does not know
└── ClusterError           a call to the cluster failed
    ├── BadConnection      the Airflow connection does not exist, or cannot be used
    ├── OtherCluster       the Airflow connection leads to another cluster than the job's
    ├── Unreachable        no response: DNS name, port, certificate, timeout
    ├── Unauthorized       401: the server rejects the credentials
    ├── Forbidden          403: a permission is missing
    ├── Refused            400, 413, 422, a webhook's 403: the server rejects the object
    ├── NotFound           404: no such object, or no such namespace
    ├── NotServed          404: the cluster does not know the kind; its operator is not installed
    ├── Conflict           409: the object already exists, or has changed since it was read
    └── Expired            410: the resource version of a list or a watch is too old

The operators translate these into Airflow's exceptions, in one place. This module imports nothing
of the package, so every layer may raise them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

_LONGEST_VALUE = 80
_DEEPEST = 3


class _Value(Enum):
    # An enum, since its members stay identical when an error is pickled.
    NOT_GIVEN = "not given"


class KfTrainError(Exception):
    """Base of all errors of this package."""

    retryable = False
    """Whether the same call may succeed later without any change."""


class InvalidSpec(KfTrainError):
    """A wrong value: what is wrong, in which field (by the author's name), and what to do.

    `value` is shortened, and of a container only the outline is shown. Omit it if it may be a
    secret, such as the value of an environment variable.
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
        """The same error, with another name of the field."""
        return type(self)(field, self.problem, advice=self.advice, value=self.value)


class UnknownKind(InvalidSpec):
    """The apiVersion and kind of the manifest are not in the table of kinds."""


class ClusterError(KfTrainError):
    """A failed call to the cluster: what was tried, why it failed, and what to do.

    Responses without a class of their own (429, 5xx) raise this class.
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
        """The HTTP status; 0 without a response."""
        self.reason = reason
        """Kubernetes' reason, such as AlreadyExists."""
        self.retry_after: float | None = None
        """Seconds, if the server says so."""

    def __str__(self) -> str:
        advice = f" {self.advice}" if self.advice else ""
        return f"cannot {self.doing}: {self.problem.rstrip('.')}.{advice}"


class BadConnection(ClusterError):
    """The Airflow connection does not exist or cannot be used; nothing was sent."""

    retryable = False


class OtherCluster(ClusterError):
    """The Airflow connection leads to another cluster than the job's; nothing was sent. The
    connection may be restored, so the call may succeed later."""


class Unreachable(ClusterError):
    """No response, or none from a Kubernetes API server."""


class Unauthorized(ClusterError):
    """The server rejects the credentials. They may be renewed, so the call may succeed later."""


class Forbidden(ClusterError):
    """A permission is missing: the error names verb and resource."""

    retryable = False


class Refused(ClusterError):
    """The server rejects the object that was sent."""

    retryable = False


class NotFound(ClusterError):
    """There is no such object, or no such namespace."""

    retryable = False


class NotServed(ClusterError):
    """The cluster does not know the kind."""

    retryable = False


class Conflict(ClusterError):
    """The object already exists (reason AlreadyExists), or has changed since it was read."""

    retryable = False


class Expired(ClusterError):
    """The resource version of a list or a watch is too old: start again."""

    retryable = False


def shown(value: object) -> str:
    """A value as an error shows it: in one line, shortened in the middle, since the end of a path
    says which file it is. The content of mappings and objects is not shown: it may be a secret."""
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
