"""Reads the proxy in a kubeconfig (`proxy-url`), which not every client library does."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

from airflow_kftrain.hooks.credentials import check_proxy, field, in_cluster


def proxy_of(extras: Mapping[str, Any], connection: str | None) -> str:
    """The URL of the proxy, which may contain a password; "" if there is none. Reads files. Raises
    BadConnection if it is not an HTTP proxy, and whatever the client library raises if it cannot
    read the kubeconfig."""
    if in_cluster(extras):
        return ""
    from kubernetes.config import kube_config  # type: ignore[import-untyped]

    said = field(extras, "kube_config")
    text = json.dumps(said) if isinstance(said, dict) else said
    path = field(extras, "kube_config_path") or kube_config.KUBE_CONFIG_DEFAULT_LOCATION
    config = kube_config.KubeConfigMerger(io.StringIO(text) if text else path).config
    config = kube_config.ConfigNode("kube-config", getattr(config, "value", config))
    context = field(extras, "cluster_context") or config["current-context"]
    name = config["contexts"].get_with_name(context)["context"]["cluster"]
    proxy = str(config["clusters"].get_with_name(name)["cluster"].safe_get("proxy-url") or "")
    if proxy:
        check_proxy(proxy, connection)
    return proxy
