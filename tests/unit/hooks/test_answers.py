"""hooks/answers.py: what a response means."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import MsgspecError

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
from airflow_kftrain.hooks import api_calls
from airflow_kftrain.hooks.answers import (
    NOT_TRUSTED,
    Answer,
    Body,
    Lines,
    check,
    is_for_nobody,
    read_answer,
    read_event,
    read_item,
    read_page,
    unreachable,
)
from airflow_kftrain.kinds import PYTORCH_JOB, TRAIN_JOB

SERVER = "https://10.0.0.1:6443 (Airflow connection ml)"
JOB = {"metadata": {"name": "train", "namespace": "ml"}, "spec": {}}
CREATE = api_calls.create_job(PYTORCH_JOB, JOB)
CREATE_TRAIN_JOB = api_calls.create_job(TRAIN_JOB, JOB)
PODS = api_calls.list_page(api_calls.POD, "ml", limit=1)


def answer(code: int, reason: str = "", message: str = "", **details: Any) -> Answer:
    status = {"kind": "Status", "message": message, "reason": reason, "details": details}
    return Answer(code, {}, json.dumps(status | {"code": code}), SERVER)


def error_of(answer: Answer, call: api_calls.Call = CREATE) -> ClusterError:
    with pytest.raises(ClusterError) as caught:
        read_answer(call, answer)
    return caught.value


WEBHOOK = 'admission webhook "validator.pytorchjob.training-operator.kubeflow.org" denied the '
RIGHT = (
    'pytorchjobs.kubeflow.org is forbidden: User "system:serviceaccount:ml:airflow" cannot create '
    'resource "pytorchjobs" in API group "kubeflow.org" in the namespace "ml"'
)
UNKNOWN_FIELD = (
    'PyTorchJob in version "v1" cannot be handled as a PyTorchJob: strict decoding error: unknown '
    'field "spec.runPolices"'
)
STALE = (
    'Operation cannot be fulfilled on pytorchjobs.kubeflow.org "train": the object has been '
    "modified; please apply your changes to the latest version and try again"
)
QUOTA_RACE = (
    'Operation cannot be fulfilled on resourcequotas "q": the object has been modified; please '
    "apply your changes to the latest version and try again"
)
NO_WEBHOOK = (
    'Internal error occurred: failed calling webhook "validator.pytorchjob.training-operator.'
    'kubeflow.org": failed to call webhook: Post "https://training-operator.kubeflow.svc:443/": '
    "dial tcp 10.1.2.3:443: connect: connection refused"
)


@pytest.mark.parametrize(
    ("said", "kind", "retryable", "text"),
    [
        pytest.param(
            answer(400, "BadRequest", UNKNOWN_FIELD),
            Refused,
            False,
            f"{UNKNOWN_FIELD}. Correct this field.",
            id="unknown-field",
        ),
        pytest.param(
            answer(400, "", "numProcPerNode: must be a number"),
            Refused,
            False,
            "numProcPerNode: must be a number.",
            id="bad-request",
        ),
        pytest.param(
            answer(401, "Unauthorized", "Unauthorized"),
            Unauthorized,
            True,
            f"{SERVER} rejects the credentials (401). The token or certificate in the "
            "connection may have expired: renew it.",
            id="unauthorized",
        ),
        pytest.param(
            answer(403, "Forbidden", RIGHT),
            Forbidden,
            False,
            "system:serviceaccount:ml:airflow may not create pytorchjobs of kubeflow.org in "
            "namespace ml. Give this user a Role with the verb create on pytorchjobs; "
            "`airflow-kftrain doctor` lists all required permissions.",
            id="right",
        ),
        pytest.param(
            answer(
                403,
                "Forbidden",
                'pods "p" is forbidden: User "x" cannot get resource "pods/log" in API group "" '
                'in the namespace "ml"',
            ),
            Forbidden,
            False,
            "x may not get pods/log in namespace ml. Give this user a Role with the verb get on "
            "pods/log; `airflow-kftrain doctor` lists all required permissions.",
            id="right-to-a-subresource",
        ),
        pytest.param(
            answer(
                403,
                "Forbidden",
                'nodes is forbidden: User "x" cannot list resource "nodes" in API group "" at the '
                "cluster scope",
            ),
            Forbidden,
            False,
            "x may not list nodes. Give this user a Role with the verb list on nodes; "
            "`airflow-kftrain doctor` lists all required permissions.",
            id="right-in-the-cluster",
        ),
        pytest.param(
            answer(403, "Forbidden", RIGHT.replace("serviceaccount:ml:airflow", "anonymous")),
            Unauthorized,
            True,
            f"{SERVER} received no credentials: system:anonymous may not create pytorchjobs of "
            "kubeflow.org in namespace ml. Check the user in the connection, and the exec plugin "
            "that fetches tokens.",
            id="nobody",
        ),
        pytest.param(
            answer(403, "Forbidden", 'forbidden: User "x" cannot get path "/version"'),
            Forbidden,
            False,
            f'{SERVER} forbids this call: forbidden: User "x" cannot get path "/version". '
            "`airflow-kftrain doctor` shows which permissions are missing.",
            id="path",
        ),
        pytest.param(
            Answer(403, {}, "<html>Access denied</html>", SERVER),
            Forbidden,
            False,
            f"{SERVER} forbids this call: <html>Access denied</html>. `airflow-kftrain doctor` "
            "shows which permissions are missing.",
            id="a-proxy-forbids",
        ),
        pytest.param(
            answer(403, "Forbidden", f"{WEBHOOK}request: spec.x: Forbidden: must be 1"),
            Refused,
            False,
            f"{WEBHOOK}request: spec.x: Forbidden: must be 1. A rule of the cluster forbids this "
            "call: correct what the message names, or ask the owner of the rule.",
            id="webhook",
        ),
        pytest.param(
            answer(
                403,
                "Forbidden",
                'pytorchjobs.kubeflow.org "train" is forbidden: unable to create new content in '
                "namespace ml because it is being terminated",
            ),
            Refused,
            False,
            'pytorchjobs.kubeflow.org "train" is forbidden: unable to create new content in '
            "namespace ml because it is being terminated. The namespace is being deleted: choose "
            "another one, or wait until it is created again.",
            id="namespace-goes",
        ),
        pytest.param(
            answer(403, "Forbidden", 'j "t" is forbidden: exceeded quota: q, used: count/j=1'),
            ClusterError,
            True,
            'the quota of the namespace is exhausted: j "t" is forbidden: exceeded quota: q, used: '
            "count/j=1. End other jobs, request less, or have the quota raised.",
            id="quota",
        ),
        pytest.param(
            Answer(404, {}, "404 page not found\n", SERVER),
            NotServed,
            False,
            f"{SERVER} does not serve PyTorchJob (kubeflow.org/v1). Install training-operator, in "
            "a version that has this kind.",
            id="not-served",
        ),
        pytest.param(
            answer(404, "NotFound", "the server could not find the requested resource"),
            NotServed,
            False,
            f"{SERVER} does not serve PyTorchJob (kubeflow.org/v1). Install training-operator, in "
            "a version that has this kind.",
            id="not-served-in-other-words",
        ),
        pytest.param(
            answer(404, "NotFound", 'namespaces "ml" not found', name="ml", kind="namespaces"),
            NotFound,
            False,
            'namespaces "ml" not found. Create the namespace, or correct its name in the operator '
            "or in the connection.",
            id="namespace",
        ),
        pytest.param(
            answer(404, "NotFound", 'pytorchjobs.kubeflow.org "train" not found', name="train"),
            NotFound,
            False,
            'pytorchjobs.kubeflow.org "train" not found.',
            id="not-found",
        ),
        pytest.param(
            answer(409, "AlreadyExists", 'pytorchjobs.kubeflow.org "train" already exists'),
            Conflict,
            False,
            'pytorchjobs.kubeflow.org "train" already exists.',
            id="already-exists",
        ),
        pytest.param(answer(409, "Conflict", STALE), Conflict, False, f"{STALE}.", id="conflict"),
        pytest.param(
            answer(409, "Conflict", QUOTA_RACE), ClusterError, True, f"{QUOTA_RACE}.", id="race"
        ),
        pytest.param(
            answer(410, "Expired", "too old resource version: 1 (5)"),
            Expired,
            False,
            "too old resource version: 1 (5).",
            id="expired",
        ),
        pytest.param(
            answer(413, "RequestEntityTooLarge", "limit is 3145728"),
            Refused,
            False,
            "the object is too large for the cluster: limit is 3145728. Move large files, scripts "
            "and variables to a ConfigMap, a volume or the image.",
            id="too-large",
        ),
        pytest.param(
            answer(500, "", "etcdserver: request is too large"),
            Refused,
            False,
            "the object is too large for the cluster: etcdserver: request is too large. Move "
            "large files, scripts and variables to a ConfigMap, a volume or the image.",
            id="too-large-for-etcd",
        ),
        pytest.param(
            answer(
                422,
                "Invalid",
                'PyTorchJob "train" is invalid: spec.runPolicy.backoffLimit: Invalid value: "x"',
                causes=[
                    {"field": "spec.runPolicy.backoffLimit", "message": 'Invalid value: "x"'},
                    {"field": "spec.y", "message": "Required value"},
                ],
            ),
            Refused,
            False,
            'spec.runPolicy.backoffLimit: Invalid value: "x"; spec.y: Required value. Correct this '
            "field.",
            id="invalid",
        ),
        pytest.param(
            answer(429, "TooManyRequests", "too many requests, please try again later"),
            ClusterError,
            True,
            "the cluster is overloaded (429): too many requests, please try again later. "
            "This is temporary.",
            id="too-many",
        ),
        pytest.param(
            answer(500, "InternalError", NO_WEBHOOK),
            ClusterError,
            True,
            f"the cluster failed (500): {NO_WEBHOOK}. Check that the pod of the operator that "
            "serves this webhook is running.",
            id="no-webhook",
        ),
        pytest.param(
            Answer(503, {}, "", SERVER),
            ClusterError,
            True,
            "the cluster failed (503): no reason given. The cluster has a problem, which may be "
            "temporary.",
            id="unavailable",
        ),
        pytest.param(
            answer(504, "Timeout", "request did not complete within the allotted timeout"),
            ClusterError,
            True,
            "the cluster failed (504): request did not complete within the allotted timeout. The "
            "cluster has a problem, which may be temporary.",
            id="timeout",
        ),
        pytest.param(
            Answer(302, {}, "", SERVER),
            Unreachable,
            True,
            f"{SERVER} is not a Kubernetes API server. Check the address in the connection: it "
            "may lead to a proxy or a login page.",
            id="a-login-page",
        ),
        pytest.param(
            Answer(200, {}, "<html>", SERVER),
            Unreachable,
            True,
            f"{SERVER} is not a Kubernetes API server. Check the address in the connection: it "
            "may lead to a proxy or a login page.",
            id="no-json",
        ),
        pytest.param(
            Answer(418, {}, "", SERVER),
            Refused,
            False,
            "the server rejected it with code 418.",
            id="unknown",
        ),
    ],
)
def test_every_refusal_says_what_is_wrong_and_what_to_do(
    said: Answer, kind: type[ClusterError], retryable: bool, text: str
) -> None:
    error = error_of(said)
    assert type(error) is kind
    assert str(error) == f"cannot create PyTorchJob ml/train: {text}"
    assert error.retryable is retryable
    assert error.code in (said.status, 0)


def test_a_kind_that_is_not_served_names_its_operator() -> None:
    not_served = Answer(404, {}, "404 page not found\n", SERVER)
    assert str(error_of(not_served, CREATE_TRAIN_JOB)) == (
        f"cannot create TrainJob ml/train: {SERVER} does not serve TrainJob (trainer.kubeflow.org/"
        "v1alpha1). Install Kubeflow Trainer, in a version that has this kind."
    )


def test_where_not_even_pods_are_served_is_no_cluster() -> None:
    error = error_of(Answer(404, {}, "Not Found", SERVER), PODS)
    assert type(error) is NotServed
    assert "Check the address in the connection." in str(error)


@pytest.mark.parametrize(
    ("headers", "details", "seconds"),
    [
        ({"retry-after": "7"}, {}, 7.0),
        ({}, {"retryAfterSeconds": 3}, 3),
        ({"retry-after": "7"}, {"retryAfterSeconds": 3}, 7.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, {}, None),
        ({}, {"retryAfterSeconds": "soon"}, None),
    ],
)
def test_the_server_says_when_to_come_back(
    headers: dict[str, str], details: dict[str, Any], seconds: float | None
) -> None:
    said = answer(429, "TooManyRequests", "", **details)._replace(headers=headers)
    assert error_of(said).retry_after == seconds


def test_what_others_say_is_cut_to_one_line() -> None:
    text = str(error_of(Answer(500, {}, "a\nb\r\n" * 10_000, SERVER)))
    assert len(text) < 1000
    assert "\n" not in text
    assert "\r" not in text


def test_a_long_list_of_faults_is_cut() -> None:
    causes = [{"field": f"spec.f{n}", "message": "x" * 400} for n in range(50)]
    assert len(str(error_of(answer(422, "Invalid", "x" * 9999, causes=causes)))) < 1000


@given(st.integers(300, 599), st.text(max_size=60) | st.from_regex(r"\A[\[{].*\Z"))
def test_whatever_is_answered_is_an_error_of_ours(code: int, text: str) -> None:
    error = error_of(Answer(code, {}, text, SERVER))
    assert str(error).startswith("cannot create PyTorchJob ml/train: ")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(
    st.integers(300, 599),
    st.fixed_dictionaries(
        {"kind": st.just("Status")},
        optional={name: json_values for name in ("message", "reason", "details", "code")},
    ),
)
def test_a_broken_status_is_an_error_of_ours(code: int, status: dict[str, Any]) -> None:
    error = error_of(Answer(code, {}, json.dumps(status), SERVER))
    assert str(error).startswith("cannot create PyTorchJob ml/train: ")


def test_a_good_answer_is_its_object() -> None:
    assert read_answer(CREATE, Answer(201, {}, '{"a": 1}')) == {"a": 1}
    check(CREATE, Answer(200, {}, "a log"))


def test_who_has_no_credentials_is_nobody() -> None:
    nobody = answer(403, "Forbidden", RIGHT.replace("serviceaccount:ml:airflow", "anonymous"))
    assert is_for_nobody(nobody)
    assert not is_for_nobody(answer(403, "Forbidden", RIGHT))
    assert not is_for_nobody(nobody._replace(status=401))


class TestEvents:
    def test_is_a_word_and_an_object(self) -> None:
        assert read_event(PODS, b'{"type": "ADDED", "object": {"a": 1}}', SERVER) == (
            "ADDED",
            {"a": 1},
        )

    def test_error_410_is_expired(self) -> None:
        said = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
        with pytest.raises(Expired, match="too old"):
            read_event(PODS, json.dumps({"type": "ERROR", "object": said}).encode(), SERVER)

    @pytest.mark.parametrize("code", [500, None, "x"])
    def test_other_errors_may_pass(self, code: Any) -> None:
        said = {"kind": "Status", "code": code, "message": "oh"}
        with pytest.raises(ClusterError, match="oh") as caught:
            read_event(PODS, json.dumps({"type": "ERROR", "object": said}).encode(), SERVER)
        assert caught.value.retryable

    @pytest.mark.parametrize("line", [b"", b"{", b"[]", b'{"type": "ADDED"}', b"\xff"])
    def test_what_is_none_comes_from_no_api_server(self, line: bytes) -> None:
        with pytest.raises(Unreachable, match="is not a Kubernetes API server"):
            read_event(PODS, line, SERVER)


class TestLists:
    @given(
        st.dictionaries(st.text(max_size=5), json_values, max_size=4),
        st.lists(json_values, max_size=4),
        st.sampled_from([None, 1, "\t"]),
    )
    def test_reads_what_json_reads(
        self, others: dict[str, Any], items: list[Any], indent: int | str | None
    ) -> None:
        body = {**others, "items": items, "metadata": {"resourceVersion": "5"}}
        page = read_page(json.dumps(body, indent=indent))
        assert [read_item(item) for item in page.items or ()] == items
        assert page.metadata == {"resourceVersion": "5"}

    @given(st.text(max_size=20) | st.just('{"items": [{}, {}], "metadata": {'))
    def test_everything_else_is_an_error(self, text: str) -> None:
        try:
            json_says = isinstance(json.loads(text), dict)
        except ValueError:
            json_says = False
        if not json_says:
            with pytest.raises((ValueError, MsgspecError)):
                read_page(text)

    @pytest.mark.parametrize("text", ['{"items": [1', '{"items": [1 2]}', '{"a": 1 "b": 2}', "{1"])
    def test_a_broken_list_is_an_error(self, text: str) -> None:
        with pytest.raises(MsgspecError):
            read_page(text)

    def test_items_may_be_null(self) -> None:
        assert read_page('{"items": null}').items is None


class TestLines:
    @given(st.lists(st.binary(max_size=12), max_size=6))
    def test_are_the_same_however_they_come(self, pieces: list[bytes]) -> None:
        lines = Lines(1000)
        found = [line for piece in pieces for line in lines.feed(piece)] + lines.rest()
        whole = b"".join(pieces).split(b"\n")
        assert found == (whole if whole[-1] else whole[:-1])

    def test_a_long_line_goes_on_without_its_rest(self) -> None:
        lines = Lines(4)
        assert lines.feed(b"abc") == []
        assert lines.feed(b"defgh\nij\n") == [b"abcd", b"ij"]
        assert lines.rest() == []


class TestBody:
    def test_is_all_that_came(self) -> None:
        body = Body(CREATE)
        body.feed(b"\xc3")
        body.feed(b"\xa9!")
        assert body.text() == "é!"

    def test_what_is_no_utf_8_is_shown_as_such(self) -> None:
        body = Body(CREATE)
        body.feed(b"a\xffb")
        assert body.text() == "a�b"

    @given(st.lists(st.binary(max_size=50), max_size=20), st.integers(1, 60))
    def test_keeps_the_end_that_is_wanted(self, pieces: list[bytes], last: int) -> None:
        body = Body(CREATE._replace(last_bytes=last))
        for piece in pieces:
            body.feed(piece)
        assert body.text() == b"".join(pieces)[-last:].decode("utf-8", "replace")

    def test_an_endless_answer_is_not_kept(self) -> None:
        mebibyte = b"x" * (1 << 20)
        end, whole = Body(CREATE._replace(last_bytes=10)), Body(CREATE)
        for _ in range(64):
            end.feed(mebibyte)
            whole.feed(mebibyte)
        end.feed(b"!")
        assert end.text() == "x" * 9 + "!"
        with pytest.raises(Unreachable, match="longer than"):
            whole.feed(b"!")


def _chained(*errors: BaseException) -> BaseException:
    """As client libraries wrap: the first is what they raise."""
    for outer, inner in zip(errors, errors[1:], strict=False):
        outer.__cause__ = inner
    return errors[0]


def _not_trusted() -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_message = "self-signed certificate"
    return error


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ConnectionRefusedError(111, "x"), f"{SERVER} refuses connections"),
        (socket.gaierror(-2, "x"), f"the host name in {SERVER} cannot be resolved"),
        (asyncio.TimeoutError(), f"{SERVER} did not respond in time"),
        (TimeoutError(), f"{SERVER} did not respond in time"),
        (ConnectionResetError(104, "x"), f"the connection to {SERVER} closed without a response"),
        (ssl.SSLError(1, "wrong version number"), f"the TLS handshake with {SERVER} failed"),
        (
            _not_trusted(),
            f"the certificate of {SERVER} is not trusted (self-signed certificate)",
        ),
        (RuntimeError("with a secret"), f"the connection to {SERVER} closed without a response"),
    ],
)
@pytest.mark.parametrize("depth", [0, 1, 3])
def test_no_answer_is_told_by_its_cause(error: BaseException, text: str, depth: int) -> None:
    wrapped = _chained(*[RuntimeError("http://user:secret@host/key") for _ in range(depth)], error)
    told = unreachable(CREATE, SERVER, wrapped)
    assert str(told).startswith(f"cannot create PyTorchJob ml/train: {text}. ")
    assert "secret" not in str(told)
    assert (told.reason == NOT_TRUSTED) is ("not trusted" in text)


def test_a_circle_of_causes_ends() -> None:
    first, second = RuntimeError(), RuntimeError()
    first.__cause__, second.__cause__ = second, first
    assert "closed" in str(unreachable(CREATE, SERVER, first))
