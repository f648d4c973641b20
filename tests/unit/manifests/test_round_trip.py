"""Building a manifest is a pure function of the spec: it always gives the same result, and changes
nothing else."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings

from airflow_kftrain import Owner, RawManifest, build_manifest
from airflow_kftrain.manifests import check_given

from .generated_specs import given_jobs, owners
from .rich_specs import rich_specs

Given = tuple[type[Any], dict[str, Any]]
settle = settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.too_slow])


def build(job: Given, owner: Owner | None = None) -> dict[str, Any]:
    spec_type, arguments = job
    return build_manifest(spec_type(**arguments), owner=owner)


@settle
@given(given_jobs)
def test_building_twice_gives_the_same(job: Given) -> None:
    assert build(job) == build(job)


@settle
@given(given_jobs)
def test_what_is_built_is_a_manifest_that_stays_as_it_is(job: Given) -> None:
    manifest = build(job)
    assert build_manifest(RawManifest(manifest)) == manifest
    assert build_manifest(RawManifest(yaml.safe_dump(manifest))) == manifest


@settle
@given(given_jobs, owners)
def test_one_with_an_owner_stays_as_it_is_too(job: Given, owner: Owner) -> None:
    manifest = build(job, owner)
    assert build_manifest(RawManifest(manifest)) == manifest


@settle
@given(given_jobs, owners)
def test_what_an_author_gives_is_never_changed(job: Given, owner: Owner) -> None:
    before = deepcopy(job)
    spec_type, arguments = job
    spec = spec_type(**arguments)
    held = deepcopy(vars(spec))
    build_manifest(spec, owner=owner, namespace="ml")
    check_given(spec_type, arguments)
    assert job == before
    assert vars(spec) == held


@settle
@given(given_jobs, owners)
def test_a_manifest_shares_nothing_with_the_spec_it_came_from(job: Given, owner: Owner) -> None:
    spec_type, arguments = job
    spec = spec_type(**arguments)
    first = build_manifest(spec, owner=owner)
    spoil(first)
    assert build_manifest(spec, owner=owner) == build(job, owner)


def spoil(value: Any) -> None:
    """Changes everything in a manifest."""
    if isinstance(value, dict):
        for item in value.values():
            spoil(item)
        value["spoilt"] = True
    elif isinstance(value, list):
        for item in value:
            spoil(item)
        value.append("spoilt")


@settle
@given(given_jobs, owners)
def test_a_manifest_is_what_json_can_hold(job: Given, owner: Owner) -> None:
    manifest = build(job, owner)
    assert json.loads(json.dumps(manifest)) == manifest


@settle
@given(given_jobs)
def test_what_can_be_built_is_accepted_at_parse(job: Given) -> None:
    check_given(*job)


@pytest.mark.parametrize("name", list(rich_specs()))
def test_rich_specs_are_built_and_stay_as_they_are(name: str) -> None:
    spec_type, arguments = rich_specs()[name]
    before = deepcopy(arguments)
    manifest = build_manifest(spec_type(**arguments))
    assert build_manifest(RawManifest(manifest)) == manifest
    assert arguments == before
