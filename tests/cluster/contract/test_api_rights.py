"""API: users and rights."""

from __future__ import annotations

import pytest

from tests.cluster.marks import needs_users
from tests.cluster.objects import refusal, secret, still_job
from tests.cluster.world import World
from tests.control_plane.access import service_account_token
from tests.control_plane.api import MERGE, Answer, Api, Manifest

_JOBS = {"apiGroups": ["kubeflow.org"], "resources": ["pytorchjobs"], "verbs": ["create", "get"]}


def _user(world: World) -> Api:
    """A user who may create jobs in the namespace, and read them by name."""
    return world.api.with_token(service_account_token(world.api, "user", world.namespace, [_JOBS]))


@needs_users
def test_an_unknown_token_is_unauthorized(world: World) -> None:
    refused = world.api.with_token("no-such-token").call("GET", world.path("Pod"))
    assert refused.object == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "Unauthorized",
        "reason": "Unauthorized",
        "code": 401,
    }
    assert refused.code == 401


@needs_users
def test_without_a_token_one_is_anonymous_and_may_see_the_version(world: World) -> None:
    """So the answer is 403 and not 401."""
    nobody = world.api.with_token(None)
    refused = nobody.call("GET", world.path("Pod"))
    assert refusal(refused) == (403, "Forbidden")
    assert 'User "system:anonymous" cannot list resource "pods"' in refused.message
    assert nobody.call("GET", "/version").code == 200
    assert nobody.call("GET", "/apis").code == 403


@needs_users
def test_what_is_granted_is_allowed_and_in_that_namespace_only(world: World) -> None:
    user = _user(world)
    created = user.create(still_job(namespace=world.namespace))
    assert created.code == 201
    assert user.get(still_job(namespace=world.namespace)).code == 200
    refused = user.create(still_job(namespace="default"))
    assert refusal(refused) == (403, "Forbidden")
    assert refused.message.endswith('in API group "kubeflow.org" in the namespace "default"')


@needs_users
@pytest.mark.parametrize(
    ("method", "place", "verb", "resource"),
    [
        ("GET", "pytorchjobs", "list", "pytorchjobs"),
        ("GET", "pytorchjobs?watch=true", "watch", "pytorchjobs"),
        ("DELETE", "pytorchjobs/job", "delete", "pytorchjobs"),
        ("DELETE", "pytorchjobs", "deletecollection", "pytorchjobs"),
        ("PATCH", "pytorchjobs/job", "patch", "pytorchjobs"),
        ("PUT", "pytorchjobs/job", "update", "pytorchjobs"),
        ("PATCH", "pytorchjobs/job/status", "patch", "pytorchjobs/status"),
        ("POST", "tfjobs", "create", "tfjobs"),
    ],
    ids=lambda value: value.partition("?")[0].replace("/", "-"),
)
def test_a_missing_right_is_named(
    world: World, method: str, place: str, verb: str, resource: str
) -> None:
    path = f"/apis/kubeflow.org/v1/namespaces/{world.namespace}/{place}"
    body: Manifest | None = {} if method in ("PATCH", "PUT", "POST") else None
    content_type = MERGE if method == "PATCH" else "application/json"
    refused = _user(world).call(method, path, body, content_type=content_type)
    assert refusal(refused) == (403, "Forbidden")
    plural, *rest = place.partition("?")[0].split("/")
    name = f' "{rest[0]}"' if rest else ""
    assert refused.message == (
        f'{plural}.kubeflow.org{name} is forbidden: User "system:serviceaccount:'
        f'{world.namespace}:user" cannot {verb} resource "{resource}" in API group "kubeflow.org"'
        f' in the namespace "{world.namespace}"'
    )
    details = {"group": "kubeflow.org", "kind": plural} | ({"name": rest[0]} if rest else {})
    assert refused.object["details"] == details


@needs_users
def test_a_missing_right_to_a_built_in_kind_is_named(world: World) -> None:
    user = _user(world)
    who = f'User "system:serviceaccount:{world.namespace}:user"'
    where = f'in API group "" in the namespace "{world.namespace}"'
    log = user.call("GET", world.path("Pod", "p") + "/log")
    assert log.message == (f'pods "p" is forbidden: {who} cannot get resource "pods/log" {where}')
    created = user.call("POST", world.path("Secret"), secret())
    assert created.message == (
        f'secrets is forbidden: {who} cannot create resource "secrets" {where}'
    )
    nodes = user.call("GET", "/api/v1/nodes")
    assert nodes.message == (
        f'nodes is forbidden: {who} cannot list resource "nodes" in API group ""'
        " at the cluster scope"
    )


@needs_users
def test_rights_are_looked_at_before_what_there_is(world: World) -> None:
    """So a missing kind or namespace is a 403 for users without the permission."""
    user = _user(world)
    for path in ("/apis/no.such/v1/namespaces/x/jobs", "/api/v1/namespaces/nowhere/pods"):
        assert refusal(user.call("GET", path)) == (403, "Forbidden")
    missing = user.call("GET", f"{world.path('PyTorchJob', None, 'kubeflow.org/v1')}/none")
    assert refusal(missing) == (404, "NotFound")


@needs_users
@pytest.mark.parametrize(
    ("asked", "allowed"),
    [
        ({"verb": "create"}, True),
        ({"verb": "delete"}, False),
        ({"verb": "create", "namespace": "default"}, False),
        ({"verb": "create", "namespace": ""}, False),
        ({"verb": "get", "group": "", "resource": "pods", "subresource": "log"}, False),
    ],
    ids=["granted", "verb", "namespace", "all-namespaces", "subresource"],
)
def test_a_user_can_ask_what_it_may_do(world: World, asked: Manifest, allowed: bool) -> None:
    attributes = {"namespace": world.namespace, "group": "kubeflow.org", "resource": "pytorchjobs"}
    answer = _ask(_user(world), {**attributes, **asked})
    assert answer.code == 201
    assert answer.object["kind"] == "SelfSubjectAccessReview"
    assert answer.object["status"]["allowed"] is allowed


def test_the_administrator_may_do_everything(world: World) -> None:
    asked = {"namespace": world.namespace, "verb": "*", "group": "*", "resource": "*"}
    assert _ask(world.api, asked).object["status"]["allowed"] is True


def _ask(user: Api, attributes: Manifest) -> Answer:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "metadata": {},
        "spec": {"resourceAttributes": attributes},
    }
    return user.create(review)
