"""The errors of the embedded cluster, in Kubernetes' own words, since clients compare them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from kftrain_local.errors import LocalError

if TYPE_CHECKING:
    from kftrain_local.server.resources import Resource


DNS_1035 = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or "
    "'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)


class Refusal(LocalError):
    """An answer that is an error, with the fields of a Status object."""

    def __init__(self, code: int, reason: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.metadata: dict[str, Any] = {}

    def status(self) -> dict[str, Any]:
        status = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "details": self.details or (None if self.code == 400 else {}),
            "code": self.code,
        }
        return {key: value for key, value in status.items() if value not in ("", None)}


def _details(resource: Resource, name: str) -> dict[str, Any]:
    details = {"name": name, "group": resource.group, "kind": resource.plural}
    return {key: value for key, value in details.items() if value}


def not_found(resource: Resource, name: str) -> Refusal:
    details = _details(resource, name)
    return Refusal(404, "NotFound", f'{resource.full_name} "{name}" not found', **details)


def already_exists(resource: Resource, name: str, *, is_going: bool) -> Refusal:
    text = f'{resource.full_name} "{name}" already exists'
    text = f"object is being deleted: {text}" if is_going else text
    return Refusal(409, "AlreadyExists", text, **_details(resource, name))


def expired(message: str) -> Refusal:
    return Refusal(410, "Expired", message)


def conflict(resource: Resource, name: str, why: str = "") -> Refusal:
    why = why or (
        "the object has been modified; please apply your changes to the latest version and try "
        "again"
    )
    return _conflict(resource, resource.full_name, name, why)


def precondition_failed(resource: Resource, name: str, why: str) -> Refusal:
    """A conflict that names the object by its kind."""
    return _conflict(resource, resource.full_kind, name, why)


def _conflict(resource: Resource, words: str, name: str, why: str) -> Refusal:
    text = f'Operation cannot be fulfilled on {words} "{name}": {why}'
    return Refusal(409, "Conflict", text, **_details(resource, name))


def bad_request(message: str) -> Refusal:
    return Refusal(400, "BadRequest", message)


def forbidden(resource: Resource, name: str, why: str, **details: Any) -> Refusal:
    text = f'{resource.full_name} "{name}" is forbidden: {why}'
    return Refusal(403, "Forbidden", text, **_details(resource, name), **details)


def denied(webhook: str, why: str) -> Refusal:
    """Rejected by the webhook of an operator: a 403, like a missing permission."""
    return Refusal(403, "Forbidden", f'admission webhook "{webhook}" denied the request: {why}')


_REASONS = {
    "Required value": "Required",
    "Unsupported value": "NotSupported",
    "Duplicate value": "Duplicate",
    "Forbidden": "Forbidden",
    "Not found": "NotFound",
    "Too long": "TooLong",
    "Too many": "TooMany",
}


def together(faults: Sequence[str]) -> str:
    """Several faults in one message, like Kubernetes."""
    return faults[0] if len(faults) == 1 else f"[{', '.join(faults)}]"


def invalid(resource: Resource, name: str, *faults: str) -> Refusal:
    """Each fault is `field: what is wrong with it`."""
    details = {"name": name, "group": resource.group, "kind": resource.kind}
    return _invalid(resource.full_kind, name, faults, details)


def invalid_options(kind: str, name: str, *faults: str) -> Refusal:
    """The options beside an object are wrong: `kind` has the fields of the query."""
    return _invalid(kind, name, faults, {"kind": kind.partition(".")[0], "name": name})


def _invalid(kind: str, name: str, faults: tuple[str, ...], details: dict[str, Any]) -> Refusal:
    why = together(faults)
    details = {key: value for key, value in details.items() if value}
    causes = [*map(_cause, faults)]
    return Refusal(422, "Invalid", f'{kind} "{name}" is invalid: {why}', **details, causes=causes)


def _cause(fault: str) -> dict[str, str]:
    field, _, message = fault.partition(": ")
    reason = _REASONS.get(message.partition(":")[0], "Invalid")
    if " in body must be of type " in message:
        reason = "TypeInvalid"
    return {"reason": f"FieldValue{reason}", "message": message, "field": field}


def unsupported_value(field: str, value: object, known: Iterable[str]) -> str:
    """The text of one fault."""
    words = ", ".join(f'"{each}"' for each in known)
    return f'{field}: Unsupported value: "{value}": supported values: {words}'
