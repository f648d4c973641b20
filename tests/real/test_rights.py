"""RBAC is on: other tests rely on it to prove that the provider needs only the documented
permissions."""

from __future__ import annotations

import yaml

from tests.cluster.jobs import pytorch_job, replica
from tests.control_plane import ControlPlane

PYTORCH_JOBS = {
    "apiGroups": ["kubeflow.org"],
    "resources": ["pytorchjobs"],
    "verbs": ["create", "get", "list"],
}


def test_user_has_the_given_rights_in_the_given_namespace_only(
    plane: ControlPlane, namespace: str
) -> None:
    elsewhere = plane.create_namespace("elsewhere")
    _, user = plane.create_user("submitter", namespace, [PYTORCH_JOBS])
    path = "/apis/kubeflow.org/v1/namespaces/{}/pytorchjobs"

    job = pytorch_job({"Master": replica("pytorch")})
    assert user.call("POST", path.format(namespace), job).code == 201
    assert user.call("GET", path.format(namespace)).code == 200
    for method, body in (("GET", None), ("POST", job)):
        refused = user.call(method, path.format(elsewhere), body)
        assert (refused.code, refused.reason) == (403, "Forbidden")
        assert "admission webhook" not in refused.message
        assert f'in the namespace "{elsewhere}"' in refused.message


def test_user_has_no_other_verb_and_no_other_resource(plane: ControlPlane, namespace: str) -> None:
    _, user = plane.create_user("submitter", namespace, [PYTORCH_JOBS])
    jobs = f"/apis/kubeflow.org/v1/namespaces/{namespace}/pytorchjobs"
    assert user.call("DELETE", f"{jobs}/job").code == 403
    assert user.call("GET", f"/api/v1/namespaces/{namespace}/pods").code == 403


def test_kubeconfig_of_a_user_names_its_namespace_and_carries_its_token(
    plane: ControlPlane, namespace: str
) -> None:
    file, _ = plane.create_user("submitter", namespace, [PYTORCH_JOBS])
    config = yaml.safe_load(file.read_text(encoding="utf-8"))
    token = config["users"][0]["user"]["token"]
    assert config["contexts"][0]["context"]["namespace"] == namespace
    assert plane.api(token).call("GET", f"/api/v1/namespaces/{namespace}/pods").code == 403
    assert file.stat().st_mode & 0o077 == 0


def test_second_user_is_known_and_may_do_nothing(plane: ControlPlane) -> None:
    refused = plane.api_without_rights().call("GET", "/api/v1/namespaces/default/pods")
    assert (refused.code, refused.reason) == (403, "Forbidden")
    assert 'User "nobody" cannot list resource "pods"' in refused.message
