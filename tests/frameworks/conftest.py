"""Real training with real frameworks, on both targets: `make test-frameworks`.

Targets and worlds are those of the scenarios in tests/cluster; nothing is recorded.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.conftest import pytest_collection_modifyitems as put_in_order
from tests.cluster.conftest import pytest_generate_tests, target, world
from tests.cluster.world import World
from tests.frameworks.roles import put_programs

__all__ = ["pytest_generate_tests", "target", "world"]

HERE = Path(__file__).parent

# They take seconds, or longer on a busy machine.
_SECONDS_A_TEST = 150


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "profile(name): the real control plane that it needs")
    config.addinivalue_line("markers", "real_only(why): what the embedded cluster does not do")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seconds = max(_SECONDS_A_TEST, config.getoption("timeout") or 0)
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.timeout(seconds, func_only=True))
    put_in_order(config, items)


@pytest.fixture(autouse=True)
def programs(world: World) -> None:
    put_programs(world)
