"""Access: kubeconfig files, and users with exactly the permissions that a test gives them."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.control_plane.api import Api, Manifest

_RBAC = "rbac.authorization.k8s.io"
_A_DAY = 24 * 3600


def write_kubeconfig(
    file: Path, *, port: int, ca: bytes, user: str, token: str, namespace: str = "default"
) -> None:
    server = {
        "server": f"https://127.0.0.1:{port}",
        "certificate-authority-data": base64.b64encode(ca).decode(),
    }
    context = {"cluster": "control-plane", "user": user, "namespace": namespace}
    config: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": user,
        "clusters": [{"name": "control-plane", "cluster": server}],
        "contexts": [{"name": user, "context": context}],
        "users": [{"name": user, "user": {"token": token}}],
    }
    file.touch(mode=0o600)
    file.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")


def service_account_token(admin: Api, name: str, namespace: str, rules: Sequence[Manifest]) -> str:
    """A ServiceAccount with only these rules in its namespace. Returns its token."""
    metadata = {"name": name, "namespace": namespace}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
    role = {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "Role",
        "metadata": metadata,
        "rules": list(rules),
    }
    binding = {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
    }
    for manifest in (account, role, binding):
        admin.apply(manifest).required(f"{manifest['kind']} {namespace}/{name}")
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": _A_DAY},
    }
    path = admin.path("v1", "ServiceAccount", namespace, name) + "/token"
    answer = admin.call("POST", path, request).required(f"a token of {namespace}/{name}")
    return str(answer["status"]["token"])
