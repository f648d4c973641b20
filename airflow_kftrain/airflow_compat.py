"""The only module that knows one version of Airflow from another."""

from __future__ import annotations

from urllib.parse import urlsplit

# What Airflow itself takes for the address of its API server when none is configured.
_UNCONFIGURED = "localhost:8080"


def airflow_instance() -> str:
    """The name of this Airflow, by which it tells its own jobs from those of others.

    It is `[kftrain] instance`, else host, port and path of `[api] base_url`, else
    `localhost:8080`: Airflows that leave both unset share one name.
    """
    return _option("kftrain", "instance") or _place(_option("api", "base_url")) or _UNCONFIGURED


def _option(section: str, name: str) -> str:
    try:
        from airflow.sdk import conf
    except ImportError:  # Airflow 3.1
        from airflow.configuration import conf as core_conf

        return (core_conf.get(section, name, fallback="") or "").strip()
    return (conf.get(section, name, fallback="") or "").strip()


def _place(url: str) -> str:
    """Host, port and path: the same over http and https, and without a user's password."""
    parts = urlsplit(url if "://" in url else f"//{url}")
    host = parts.netloc.rpartition("@")[2].lower()
    return (host + parts.path).strip("/")
