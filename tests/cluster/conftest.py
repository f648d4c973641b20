"""Scenarios run on a target, each in a namespace of its own: `pytest tests/cluster --target real`.

On the real target a scenario needs one of two profiles, since MPIJob is either v1 or v2beta1:
`pytestmark = pytest.mark.profile("mpi-operator")`; without the mark it is training-operator. A
scenario that the embedded cluster does not support is marked `real_only("why")`.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Generator, Iterator
from fcntl import LOCK_EX
from pathlib import Path

import pytest

from kftrain_local.faults.command import FaultProxy, running
from tests.cluster.comparison import unlike
from tests.cluster.recorder import RECORDINGS
from tests.cluster.sharing import folder_of_the_run, locked, shared
from tests.cluster.table import Table, real_only, scenario_of
from tests.cluster.targets import LocalTarget, Target
from tests.cluster.world import World
from tests.control_plane import PROFILES

HERE = Path(__file__).parent

# Without the time of fixtures: a test that waits for another control plane is not at fault.
_SECONDS_A_TEST = 180

_LOCAL = "local"

_report = pytest.StashKey[pytest.TestReport]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "profile(name): the real control plane that it needs")
    config.addinivalue_line("markers", "real_only(why): what the embedded cluster does not do")
    config.pluginmanager.register(Table(), "conformance-table")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "target" in metafunc.fixturenames:
        mark = metafunc.definition.get_closest_marker("profile")
        profiles = {"local": _LOCAL, "real": mark.args[0] if mark else PROFILES[0]}
        names = metafunc.config.getoption("--target") or ["local"]
        targets = [profiles[name] for name in names]
        # Next to other parameters the scope must be explicit, or each test gets a target of its
        # own.
        metafunc.parametrize("target", targets, indirect=True, scope="session", ids=names)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    elsewhere = [item for item in items if _target_of(item) == _LOCAL and real_only(item)]
    config.hook.pytest_deselected(items=elsewhere)
    items[:] = [item for item in items if item not in set(elsewhere)]
    for item in items:
        if item.path.is_relative_to(HERE) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_SECONDS_A_TEST, func_only=True))
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    target = _target_of(item)
    return PROFILES.index(target) if target in PROFILES else -1


def _target_of(item: pytest.Item) -> str | None:
    call = getattr(item, "callspec", None)
    return call.params.get("target") if call is not None else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call":
        item.stash[_report] = report
    return report


@pytest.fixture(scope="session")
def target(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Target]:
    folder = folder_of_the_run(request.config, tmp_path_factory)
    with LocalTarget() if request.param == _LOCAL else shared(request.param, folder) as target:
        yield target


@pytest.fixture
def alone(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Scenarios that affect the whole cluster, or look at it, run one after the other. By a lock,
    since pytest-xdist 3.8 ignores groups with pytest 9.2."""
    with locked(folder_of_the_run(request.config, tmp_path_factory) / "alone", LOCK_EX):
        yield


@pytest.fixture
def world(target: Target, request: pytest.FixtureRequest) -> Iterator[World]:
    name = f"t-{secrets.token_hex(4)}"
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    target.api.create(namespace).required("a namespace")
    world = World(target, name)
    yield world
    try:
        if world.recorder is not None:
            world.recorder.stop()
            report = request.node.stash.get(_report, None)
            if report is not None and report.passed:
                _keep_recording(world, request)
    finally:
        target.api.delete(namespace)
        target.check()


@pytest.fixture
def connection(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Airflow connection `cluster`."""
    connect(monkeypatch, world.target.kubeconfig)


@pytest.fixture
def proxy(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    """Injects faults on the way of the Airflow connection `cluster`."""
    with running(FaultProxy(world.target.kubeconfig)) as proxy:
        connect(monkeypatch, proxy.kubeconfig)
        yield proxy


def connect(monkeypatch: pytest.MonkeyPatch, kubeconfig: Path) -> None:
    said = {"conn_type": "kubernetes", "extra": {"kube_config_path": str(kubeconfig)}}
    monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", json.dumps(said))


def _keep_recording(world: World, request: pytest.FixtureRequest) -> None:
    """Writes the recording if that is requested and the target is the real one, or compares with
    the existing one. A scenario that creates no job has none."""
    assert world.recorder is not None
    scenario = scenario_of(request.node)
    file = RECORDINGS / f"{scenario.file_name}.jsonl"
    lines = world.recorder.lines(scenario.text)
    if world.target.name == "real" and request.config.getoption("--record"):
        file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    assert file.exists(), f"no recording {file.name}: make recordings"
    if world.target.name == "local" and lines:
        assert not (faults := unlike(lines, file.stem)), f"unlike on the real target: {faults}"
