"""What the API server answered: an object, or an error of ours that says what to do. Pure.

The texts of others are cut, and stand in one line. Addresses are shown without their path, which
may be a key; what an exception of a client library says of itself is not shown at all.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

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
    """Their names in lower case."""
    text: str
    server: str = "the cluster"
    """Who answered, for errors: an address without its path, and the connection."""


class _Said(NamedTuple):
    """What a Status object says; all of it empty where the answer is none."""

    is_status: bool
    code: int
    reason: str
    message: str
    details: Mapping[str, Any]
    retry_after: float | None
    server: str


def read_answer(call: Call, answer: Answer) -> dict[str, Any]:
    """The object; raises ClusterError."""
    check(call, answer)
    try:
        body = json.loads(answer.text)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise no_api_server(call, answer.server)
    return body


def check(call: Call, answer: Answer) -> None:
    """Raises ClusterError unless the call was done."""
    if 300 <= answer.status < 400:
        raise no_api_server(call, answer.server)
    if not 200 <= answer.status < 300:
        raise _refusal(call, _read_refusal(answer))


def is_for_nobody(answer: Answer) -> bool:
    """Whether the server refused us as somebody without credentials: a client library goes on
    without a token where fetching one has failed."""
    return answer.status == 403 and f'User "{_NOBODY}"' in answer.text.replace('\\"', '"')


def read_event(call: Call, line: bytes, server: str) -> tuple[str, dict[str, Any]]:
    """A line of a watch: what happened, and to which object. Raises ClusterError for an event that
    is an error; Expired if the watch has to start anew."""
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


def parse_list(text: str) -> Iterator[tuple[str, Any]]:
    """A list, item by item, so that an event loop can do something else in between: ("item", the
    object) for each, and (key, value) for all else. Raises ValueError."""
    read = json.JSONDecoder().raw_decode
    here = _after(text, 0, "{")
    while text[here : here + 1] != "}":
        key, here = read(text, here)
        here = _after(text, here, ":")
        if key == "items" and text.startswith("[", here):
            here = _after(text, here, "[")
            while text[here : here + 1] != "]":
                item, here = read(text, here)
                yield "item", item
                here = _after_comma(text, here, "]")
            here = _skip_spaces(text, here + 1)
        else:
            value, here = read(text, here)
            yield key, value
        here = _after_comma(text, here, "}")


def _after(text: str, here: int, sign: str) -> int:
    here = _skip_spaces(text, here)
    if not text.startswith(sign, here):
        raise ValueError(f"no {sign} at {here}")
    return _skip_spaces(text, here + len(sign))


def _after_comma(text: str, here: int, end: str) -> int:
    here = _skip_spaces(text, here)
    return here if text.startswith(end, here) else _after(text, here, ",")


_SPACES = re.compile(r"\s*")


def _skip_spaces(text: str, here: int) -> int:
    found = _SPACES.match(text, here)
    return found.end() if found else here


class Body:
    """Puts together an answer that comes in pieces, or only the end of it."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._bytes = bytearray()

    def feed(self, piece: bytes) -> None:
        """Raises Unreachable for an answer that no memory should hold."""
        self._bytes += piece
        last = self._call.last_bytes
        if last is not None and len(self._bytes) > last + _SLACK:
            del self._bytes[:-last]
        if len(self._bytes) > _LONGEST_ANSWER:
            problem = f"the answer is longer than {_LONGEST_ANSWER} bytes"
            raise Unreachable(self._call.doing, problem)

    def text(self) -> str:
        last = self._call.last_bytes
        kept = self._bytes if last is None else self._bytes[max(len(self._bytes) - last, 0) :]
        return kept.decode("utf-8", "replace")


class Lines:
    """Puts together the lines of a stream that comes in pieces. A line that is too long goes on
    without its rest."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._open = bytearray()

    def feed(self, piece: bytes) -> list[bytes]:
        """The lines that are complete now."""
        *ended, rest = piece.split(b"\n")
        lines = []
        for part in ended:
            self._add(part)
            lines.append(bytes(self._open))
            self._open.clear()
        self._add(rest)
        return lines

    def rest(self) -> list[bytes]:
        """The last line of a stream that does not end with a line break."""
        return [bytes(self._open)] if self._open else []

    def _add(self, part: bytes) -> None:
        self._open += part[: self._longest - len(self._open)]


def unreachable(call: Call, server: str, error: BaseException) -> Unreachable:
    """For what a client library raises when there is no answer."""
    causes = _causes(error)
    problem, advice = next(
        (words for kind, words in _TROUBLES if any(isinstance(each, kind) for each in causes)),
        ("the connection to {server} broke without an answer", "This may pass."),
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
            "there is no TLS with {server}",
            "Check that the connection's address begins with https:// exactly where the server "
            "speaks TLS.",
        ),
    ),
    (
        socket.gaierror,
        (
            "the name in {server} is not known",
            "Check the address in the connection, and that this process can resolve it.",
        ),
    ),
    (
        ConnectionRefusedError,
        (
            "{server} refuses connections",
            "Check the address in the connection, and that the cluster is up.",
        ),
    ),
    (
        (TimeoutError, asyncio.TimeoutError),  # two until Python 3.10
        (
            "{server} did not answer in time",
            "It may be overloaded, or a firewall drops what we send.",
        ),
    ),
)


def _causes(error: BaseException | None) -> list[BaseException]:
    """The error and what led to it; client libraries wrap, and not always with `from`."""
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
        f"{server} is no API server of Kubernetes",
        advice="Check the address in the connection: a proxy or a login page may stand there.",
    )


def _unauthorized(call: Call, said: _Said) -> ClusterError:
    return Unauthorized(
        call.doing,
        f"{said.server} does not take our credentials (401)",
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
    """403 is said by RBAC, by quota, and by webhooks and other rules alike."""
    right = _MISSING_RIGHT.search(said.message)
    if right:
        return _missing_right(call, said, right)
    if "exceeded quota" in said.message:
        return ClusterError(
            call.doing,
            f"the quota of the namespace is used up: {said.message}",
            advice="End what uses it, ask for less, or have the quota raised.",
            code=403,
            reason=QUOTA_EXCEEDED,
        )
    if not said.is_status or " cannot " in said.message:
        return Forbidden(
            call.doing,
            f"{said.server} forbids it: {said.message or 'it does not say why'}",
            advice="`airflow-kftrain doctor` shows which rights are missing.",
            code=403,
            reason=said.reason,
        )
    advice = "A rule of the cluster forbids it: correct what it names, or ask who made the rule."
    if "because it is being terminated" in said.message:
        advice = "The namespace is being deleted: choose another, or wait until it is made anew."
    return Refused(call.doing, said.message, advice=advice, code=403, reason=said.reason)


def _missing_right(call: Call, said: _Said, right: re.Match[str]) -> ClusterError:
    resource, group = right["resource"], right["group"]
    what = f"{resource} of {group}" if group else resource
    where = f" in namespace {right['namespace']}" if right["namespace"] else ""
    advice = (
        f"Give it a Role with the verb {right['verb']} on {resource}; `airflow-kftrain doctor` "
        "shows all rights that are needed."
    )
    problem = f"{right['user']} may not {right['verb']} {what}{where}"
    if right["user"] == _NOBODY:
        problem = f"{said.server} got no credentials from us: {problem}"
        advice = "Check what the connection says of its user, and the program that fetches tokens."
        return Unauthorized(call.doing, problem, advice=advice, code=403, reason=said.reason)
    return Forbidden(call.doing, problem, advice=advice, code=403, reason=said.reason)


def _not_found(call: Call, said: _Said) -> ClusterError:
    if not said.is_status or "could not find the requested resource" in said.message:
        return _not_served(call, said)
    advice = ""
    if said.details.get("kind") == "namespaces":
        advice = "Make the namespace, or correct its name in the operator or in the connection."
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
        # Two were counted at the same moment: not about our object at all.
        return ClusterError(call.doing, said.message, code=409, reason=said.reason)
    problem = said.message or "it has changed since it was read"
    return Conflict(call.doing, problem, code=409, reason=said.reason)


def _expired(call: Call, said: _Said) -> ClusterError:
    return Expired(
        call.doing,
        said.message or "the server has forgotten that version",
        code=410,
        reason=said.reason or "Expired",
    )


def _too_large(call: Call, said: _Said) -> ClusterError:
    advice = "Take large files, scripts and variables out of it: a ConfigMap, a volume, the image."
    problem = f"it is too large for the cluster: {said.message or 'no reason given'}"
    return Refused(call.doing, problem, advice=advice, code=said.code, reason=said.reason)


def _refused(call: Call, said: _Said) -> ClusterError:
    """400, 422, and what we have never seen."""
    problem = "; ".join(_faults(said)) or said.message or f"it was refused with code {said.code}"
    advice = "Correct the field that is named." if _names_a_field(said) else ""
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
    problem = f"the cluster has too much to do (429): {said.message or 'it says no more'}"
    return ClusterError(
        call.doing, problem, advice="This passes by itself.", code=429, reason=said.reason
    )


def _server_trouble(call: Call, said: _Said) -> ClusterError:
    if "request is too large" in said.message or "larger than max" in said.message:
        return _too_large(call, said)
    advice = "The cluster is in trouble of its own; this may pass."
    if "failed calling webhook" in said.message:
        advice = "Check that the pod of the operator whose webhook this is runs."
    problem = f"the cluster failed ({said.code}): {said.message or 'it does not say why'}"
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
