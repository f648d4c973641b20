"""Tests on a real control plane: `make test-real`.

A test that uses `plane` runs once on each profile without Kueue, or on those that it names:
`@pytest.mark.parametrize("plane", ["mpi-operator"], indirect=True)`. There is one control plane per
machine, so the tests are sorted: first those that start their own, then profile by profile.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.control_plane import PROFILES, ControlPlane
from tests.control_plane.launcher import WITHOUT_KUEUE

HERE = Path(__file__).parent

# Without the time of fixtures: a test that waits for another control plane is not at fault.
_SECONDS_A_TEST = 60


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "plane" in metafunc.fixturenames and not _names_its_profiles(metafunc.definition):
        metafunc.parametrize("plane", WITHOUT_KUEUE, indirect=True)


def _names_its_profiles(test: pytest.Item) -> bool:
    for mark in test.iter_markers("parametrize"):
        names = mark.args[0]
        if "plane" in (names.replace(" ", "").split(",") if isinstance(names, str) else names):
            return True
    return False


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_SECONDS_A_TEST, func_only=True))
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    call = getattr(item, "callspec", None)
    profile = call.params.get("plane") if call is not None else None
    return PROFILES.index(profile) if profile is not None else -1


@pytest.fixture(scope="session")
def plane(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    with ControlPlane(request.param) as plane:
        yield plane


@pytest.fixture(autouse=True)
def nothing_has_died(request: pytest.FixtureRequest) -> Iterator[None]:
    """Names a part that has died, instead of what fails later without it."""
    yield
    if "plane" in request.fixturenames:
        request.getfixturevalue("plane").check()


@pytest.fixture
def namespace(plane: ControlPlane) -> str:
    return plane.create_namespace("test")
