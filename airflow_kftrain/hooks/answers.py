"""Turns the response of an API server into an object, or into an error that says what to do. Pure.

Texts of others are shortened to one line. Addresses are shown without their path, which may be a
key. The messages of exceptions of client libraries are never shown.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from airflow_kftrain.errors import (
    ClusterError,
    Conflict,
    Expired,
    Forbidden,
    NotFound,
    NotServed,
    Refused,
    Unauthorized,
    Unreachable,
)
from airflow_kftrain.hooks.api_calls import Call
from airflow_kftrain.job_state import read_mapping, read_mappings, read_number, read_text
from airflow_kftrain.monitoring.text import one_line

_LONGEST = 600
_LONGEST_ANSWER = 64 << 20
_SLACK = 1 << 20

ALREADY_EXISTS = "AlreadyExists"
QUOTA_EXCEEDED = "QuotaExceeded"
NOT_TRUSTED = "CertificateNotTrusted"


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    """By their names in lower case."""
    text: str
    server: str = "the cluster"
    """Who answered, for errors: the address without its path, and the connection."""


class _Said(NamedTuple):
    """The content of a Status object; empty if the response is none."""

    is_status: bool
    code: int
    reason: str
    message: str
    details: Mapping[str, Any]
    retry_after: float | None
    server: str


def read_answer(call: Call, answer: Answer) -> dict[str, Any]:
    """The object. Raises ClusterError."""
    check(call, answer)
    try:
        body = json.loads(answer.text)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise no_api_server(call, answer.server)
    return body


def check(call: Call, answer: Answer) -> None:
    """Raises ClusterError unless the call has succeeded."""
    if 300 <= answer.status < 400:
        raise no_api_server(call, answer.server)
    if not 200 <= answer.status < 300:
        raise _refusal(call, _read_refusal(answer))


def is_for_nobody(answer: Answer) -> bool:
    """Whether the server saw no credentials: if fetching a token fails, client libraries continue
    without one."""
    return answer.status == 403 and f'User "{_NOBODY}"' in answer.text.replace('\\"', '"')


def read_event(call: Call, line: bytes, server: str) -> tuple[str, dict[str, Any]]:
    """Reads a line of a watch: the type of the event, and the object. Raises ClusterError for an
    ERROR event, and Expired if the watch has to start again."""
    try:
        event = json.loads(line)
    except ValueError:
        event = None
    event = read_mapping(event)
    changed = event.get("object")
    if not isinstance(changed, dict):
        raise no_api_server(call, server)
    if event.get("type") == "ERROR":
        code = read_number(changed.get("code")) or 500
        raise _refusal(call, _read_refusal(Answer(code, {}, json.dumps(changed), server)))
    return read_text(event.get("type")), changed


class ListPage(msgspec.Struct):
    """A page of a list. Its items are parsed later, one by one, so that the event loop gets a turn
    in between."""

    items: list[msgspec.Raw] | None = None
    metadata: Any = None


read_page = msgspec.json.Decoder(ListPage).decode
"""Raises ValueError or MsgspecError."""
read_item = msgspec.json.Decoder().decode


class Body:
    """Assembles a response from pieces, or only the end of it."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._bytes = bytearray()

    def feed(self, piece: bytes) -> None:
        """Raises Unreachable if the response is too long to be kept in memory."""
        self._bytes += piece
        last = self._call.last_bytes
        if last is not None and len(self._bytes) > last + _SLACK:
            del self._bytes[:-last]
        if len(self._bytes) > _LONGEST_ANSWER:
            problem = f"the response is longer than {_LONGEST_ANSWER} bytes"
            raise Unreachable(self._call.doing, problem)

    def text(self) -> str:
        last = self._call.last_bytes
        kept = self._bytes if last is None else self._bytes[max(len(self._bytes) - last, 0) :]
        return kept.decode("utf-8", "replace")


class Lines:
    """Assembles the lines of a stream from pieces. A line that is too long is cut off."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._open = bytearray()

    def feed(self, piece: bytes) -> list[bytes]:
        """Returns the lines that are complete now."""
        *ended, rest = piece.split(b"\n")
        lines = []
        for part in ended:
            self._add(part)
            lines.append(bytes(self._open))
            self._open.clear()
        self._add(rest)
        return lines

    def rest(self) -> list[bytes]:
        """The last line, if the stream does not end with a line break."""
        return [bytes(self._open)] if self._open else []

    def _add(self, part: bytes) -> None:
        self._open += part[: self._longest - len(self._open)]


def unreachable(call: Call, server: str, error: BaseException) -> Unreachable:
    """The error for an exception of a client library when there is no response."""
    causes = _causes(error)
    problem, advice = next(
        (words for kind, words in _TROUBLES if any(isinstance(each, kind) for each in causes)),
        ("the connection to {server} closed without a response", "This may be temporary."),
    )
    problem, reason = problem.format(server=server), ""
    if any(isinstance(each, ssl.SSLCertVerificationError) for each in causes):
        whys = [getattr(each, "verify_message", "") for each in causes]
        problem, reason = f"{problem} ({one_line(max(whys, key=len), 200)})", NOT_TRUSTED
    return Unreachable(call.doing, problem, advice=advice, reason=reason)


_Kinds = type[BaseException] | tuple[type[BaseException], ...]

_TROUBLES: tuple[tuple[_Kinds, tuple[str, str]], ...] = (
    (
        ssl.SSLCertVerificationError,
        (
            "the certificate of {server} is not trusted",
            "Give the connection the cluster's certificate authority (`certificate-authority-data` "
            "in its kubeconfig).",
        ),
    ),
    (
        ssl.SSLError,
        (
            "the TLS handshake with {server} failed",
            "Check that the connection's address begins with https:// if, and only if, the "
            "server uses TLS.",
        ),
    ),
    (
        socket.gaierror,
        (
            "the host name in {server} cannot be resolved",
            "Check the address in the connection, and the DNS settings of this machine.",
        ),
    ),
    (
        ConnectionRefusedError,
        (
            "{server} refuses connections",
            "Check the address in the connection, and that the cluster is running.",
        ),
    ),
    (
        (TimeoutError, asyncio.TimeoutError),  # two classes until Python 3.10
        (
            "{server} did not respond in time",
            "It may be overloaded, or a firewall may drop the packets.",
        ),
    ),
)


def _causes(error: BaseException | None) -> list[BaseException]:
    """The error and its causes. Client libraries wrap exceptions, and not always with `from`."""
    found: list[BaseException] = []
    waiting = [error]
    while waiting and len(found) < 20:
        each = waiting.pop(0)
        if isinstance(each, BaseException) and each not in found:
            found.append(each)
            waiting += [each.__cause__, each.__context__, getattr(each, "reason", None)]
            waiting += [a for a in each.args if isinstance(a, BaseException)]
    return found


def _read_refusal(answer: Answer) -> _Said:
    try:
        body = json.loads(answer.text)
    except ValueError:
        body = None
    status = read_mapping(body)
    is_status = status.get("kind") == "Status"
    details = read_mapping(status.get("details"))
    given = answer.headers.get("retry-after", "")
    after = float(given) if given.isdecimal() else read_number(details.get("retryAfterSeconds"))
    return _Said(
        is_status=is_status,
        code=answer.status,
        reason=read_text(status.get("reason")),
        message=one_line(read_text(status.get("message")) if is_status else answer.text, _LONGEST),
        details=details,
        retry_after=after,
        server=answer.server,
    )


def _refusal(call: Call, said: _Said) -> ClusterError:
    read = _READERS.get(said.code, _server_trouble if said.code >= 500 else _refused)
    error = read(call, said)
    error.retry_after = said.retry_after
    return error


def no_api_server(call: Call, server: str) -> Unreachable:
    return Unreachable(
        call.doing,
        f"{server} is not a Kubernetes API server",
        advice="Check the address in the connection: it may lead to a proxy or a login page.",
    )


def _unauthorized(call: Call, said: _Said) -> ClusterError:
    return Unauthorized(
        call.doing,
        f"{said.server} rejects the credentials (401)",
        advice="The token or certificate in the connection may have expired: renew it.",
        code=said.code,
        reason=said.reason or "Unauthorized",
    )


_NOBODY = "system:anonymous"
_MISSING_RIGHT = re.compile(
    r'User "(?P<user>[^"]*)" cannot (?P<verb>\w+) resource "(?P<resource>[^"]+)"'
    r'(?: in API group "(?P<group>[^"]*)")?'
    r'(?: in the namespace "(?P<namespace>[^"]*)")?'
)


def _forbidden(call: Call, said: _Said) -> ClusterError:
    """RBAC, quotas, webhooks and other rules all answer 403."""
    right = _MISSING_RIGHT.search(said.message)
    if right:
        return _missing_right(call, said, right)
    if "exceeded quota" in said.message:
        return ClusterError(
            call.doing,
            f"the quota of the namespace is exhausted: {said.message}",
            advice="End other jobs, request less, or have the quota raised.",
            code=403,
            reason=QUOTA_EXCEEDED,
        )
    if not said.is_status or " cannot " in said.message:
        return Forbidden(
            call.doing,
            f"{said.server} forbids this call: {said.message or 'no reason given'}",
            advice="`airflow-kftrain doctor` shows which permissions are missing.",
            code=403,
            reason=said.reason,
        )
    advice = (
        "A rule of the cluster forbids this call: correct what the message names, or ask the owner "
        "of the rule."
    )
    if "because it is being terminated" in said.message:
        advice = (
            "The namespace is being deleted: choose another one, or wait until it is created again."
        )
    return Refused(call.doing, said.message, advice=advice, code=403, reason=said.reason)


def _missing_right(call: Call, said: _Said, right: re.Match[str]) -> ClusterError:
    resource, group = right["resource"], right["group"]
    what = f"{resource} of {group}" if group else resource
    where = f" in namespace {right['namespace']}" if right["namespace"] else ""
    advice = (
        f"Give this user a Role with the verb {right['verb']} on {resource}; `airflow-kftrain "
        "doctor` lists all required permissions."
    )
    problem = f"{right['user']} may not {right['verb']} {what}{where}"
    if right["user"] == _NOBODY:
        problem = f"{said.server} received no credentials: {problem}"
        advice = "Check the user in the connection, and the exec plugin that fetches tokens."
        return Unauthorized(call.doing, problem, advice=advice, code=403, reason=said.reason)
    return Forbidden(call.doing, problem, advice=advice, code=403, reason=said.reason)


def _not_found(call: Call, said: _Said) -> ClusterError:
    if not said.is_status or "could not find the requested resource" in said.message:
        return _not_served(call, said)
    advice = ""
    if said.details.get("kind") == "namespaces":
        advice = "Create the namespace, or correct its name in the operator or in the connection."
    problem = said.message or "there is no such object"
    return NotFound(call.doing, problem, advice=advice, code=404, reason=said.reason)


def _not_served(call: Call, said: _Said) -> ClusterError:
    advice = "Check the address in the connection."
    if call.operator:
        advice = f"Install {call.operator}, in a version that has this kind."
    problem = f"{said.server} does not serve {call.kind or 'that'}"
    return NotServed(call.doing, problem, advice=advice, code=404, reason=said.reason)


def _conflict(call: Call, said: _Said) -> ClusterError:
    if said.reason == ALREADY_EXISTS:
        return Conflict(call.doing, said.message, code=409, reason=ALREADY_EXISTS)
    if "resourcequota" in said.message:
        # Two objects were counted at the same moment, so this is not about ours.
        return ClusterError(call.doing, said.message, code=409, reason=said.reason)
    problem = said.message or "the object has changed since it was read"
    return Conflict(call.doing, problem, code=409, reason=said.reason)


def _expired(call: Call, said: _Said) -> ClusterError:
    return Expired(
        call.doing,
        said.message or "the resource version is too old",
        code=410,
        reason=said.reason or "Expired",
    )


def _too_large(call: Call, said: _Said) -> ClusterError:
    advice = "Move large files, scripts and variables to a ConfigMap, a volume or the image."
    problem = f"the object is too large for the cluster: {said.message or 'no reason given'}"
    return Refused(call.doing, problem, advice=advice, code=said.code, reason=said.reason)


def _refused(call: Call, said: _Said) -> ClusterError:
    """400, 422, and codes that are not known."""
    problem = (
        "; ".join(_faults(said)) or said.message or f"the server rejected it with code {said.code}"
    )
    advice = "Correct this field." if _names_a_field(said) else ""
    return Refused(
        call.doing, one_line(problem, _LONGEST), advice=advice, code=said.code, reason=said.reason
    )


def _faults(said: _Said) -> list[str]:
    causes = read_mappings(said.details.get("causes"))
    faults = [(read_text(each.get("field")), read_text(each.get("message"))) for each in causes]
    return [f"{field}: {message}" for field, message in faults[:5] if field and message]


def _names_a_field(said: _Said) -> bool:
    return bool(_faults(said)) or "unknown field" in said.message


def _too_many(call: Call, said: _Said) -> ClusterError:
    problem = f"the cluster is overloaded (429): {said.message or 'no reason given'}"
    return ClusterError(
        call.doing, problem, advice="This is temporary.", code=429, reason=said.reason
    )


def _server_trouble(call: Call, said: _Said) -> ClusterError:
    if "request is too large" in said.message or "larger than max" in said.message:
        return _too_large(call, said)
    advice = "The cluster has a problem, which may be temporary."
    if "failed calling webhook" in said.message:
        advice = "Check that the pod of the operator that serves this webhook is running."
    problem = f"the cluster failed ({said.code}): {said.message or 'no reason given'}"
    return ClusterError(call.doing, problem, advice=advice, code=said.code, reason=said.reason)


_READERS: Mapping[int, Callable[[Call, _Said], ClusterError]] = {
    401: _unauthorized,
    403: _forbidden,
    404: _not_found,
    409: _conflict,
    410: _expired,
    413: _too_large,
    429: _too_many,
}
