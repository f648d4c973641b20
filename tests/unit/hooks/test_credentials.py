"""hooks: which cluster a client talks to."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from airflow_kftrain.hooks.credentials import fingerprint, other_cluster

HOST = "https://10.0.0.1:6443"


def of(host: str, authority: Path | None = None) -> str:
    return fingerprint(SimpleNamespace(host=host, ssl_ca_cert=authority and str(authority)))


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    file = tmp_path / "ca.crt"
    file.write_text("-----BEGIN CERTIFICATE-----\n")
    return file


def test_a_fingerprint_is_short_and_begins_with_the_address() -> None:
    assert of(HOST).startswith(f"{HOST}#")
    assert len(of(HOST)) == len(HOST) + 13


def test_a_fingerprint_depends_on_path_and_authority(authority: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.crt"
    other.write_text("-----BEGIN CERTIFICATE-----\nother")
    found = [of(HOST), of(HOST, authority), of(HOST, other), of(f"{HOST}/k8s/clusters/c-1")]
    assert len(set(found)) == 4
    assert {each.partition("#")[0] for each in found} == {HOST}


def test_a_fingerprint_does_not_depend_on_how_things_are_written(authority: Path) -> None:
    wanted = of("https://api.example.com", authority)
    authority.write_text(f"{authority.read_text()}\n\n")
    for host in ("https://API.example.com:443/", "https://api.example.com:443"):
        assert of(host, authority) == wanted


def test_a_fingerprint_holds_neither_users_nor_paths() -> None:
    found = of("https://me:hush@10.0.0.1:6443/hush")
    assert "hush" not in found
    assert found == of("https://you@10.0.0.1:6443/hush")


def test_an_authority_that_is_gone_is_none(tmp_path: Path) -> None:
    assert of(HOST, tmp_path / "gone") == of(HOST)


def test_a_connection_that_leads_elsewhere_is_told() -> None:
    error = other_cluster("cluster", of(HOST), of("https://10.0.0.2:6443"))
    assert error.retryable
    assert str(error) == (
        "cannot reach the cluster at https://10.0.0.1:6443, where the job was submitted: Airflow "
        "connection cluster now leads to https://10.0.0.2:6443. Restore the connection until the "
        "job has ended; or clear the task, so that it runs on the new cluster, and delete the old "
        "job by hand."
    )


def test_another_cluster_may_have_the_same_address(authority: Path) -> None:
    told = str(other_cluster(None, of(HOST), of(HOST, authority)))
    assert (
        "the configuration of this process now leads to https://10.0.0.1:6443, but to another path "
        "or with another certificate authority."
    ) in told
