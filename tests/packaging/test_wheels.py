"""The two distributions as they are installed: their contents, and what works with one or both."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.cluster.jobs import pytorch_job, replica

_ROOT = Path(__file__).parents[2]
_PROVIDER = _ROOT / "airflow_kftrain"
_LOCAL = _ROOT / "kftrain-local" / "kftrain_local"
_PATIENCE = 120

pytestmark = pytest.mark.timeout(4 * _PATIENCE)

_DAG = """
from airflow.sdk import DAG
from airflow_kftrain.operators.pytorch_job import PyTorchJobOperator

with DAG("packaged"):
    PyTorchJobOperator(task_id="train", image="train:1.4", workers=1)
"""


def _call(*words: object, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    return subprocess.run(
        [*map(str, words)],
        env={**kept, **variables},
        capture_output=True,
        text=True,
        timeout=_PATIENCE,
        check=False,
    )


def _must(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheels of the provider and of kftrain-local, built with the installed tools."""
    folder = tmp_path_factory.mktemp("wheels")
    words = ("wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation")
    _must(_call(sys.executable, "-m", "pip", *words, "--wheel-dir", folder, _ROOT, _LOCAL.parent))
    (provider,) = folder.glob("airflow_kftrain-*.whl")
    (local,) = folder.glob("kftrain_local-*.whl")
    return provider, local


class Environment:
    """A fresh environment, which finds the dependencies in the environment of the tests."""

    def __init__(self, folder: Path, *installed: Path) -> None:
        self._folder = folder
        _must(_call(sys.executable, "-m", "venv", "--without-pip", folder / "venv"))
        python = folder / "venv" / "bin" / "python"
        words = ("install", "--quiet", "--no-deps", "--no-index")
        _must(_call(sys.executable, "-m", "pip", "--python", python, *words, *installed))
        (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
        # The .pth files in such a folder are not read, so what is installed there in editable form
        # is not found.
        (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))

    def python(self, program: str) -> subprocess.CompletedProcess[str]:
        return _call(self._folder / "venv" / "bin" / "python", "-c", program)

    def __call__(self, *words: object) -> subprocess.CompletedProcess[str]:
        """airflow-kftrain"""
        return _call(
            self._folder / "venv" / "bin" / "airflow-kftrain",
            *words,
            TMPDIR=str(self._folder),
            AIRFLOW_HOME=str(self._folder / "airflow"),
            AIRFLOW__CORE__DAGS_FOLDER=str(self._folder / "dags"),
            AIRFLOW__CORE__LOAD_EXAMPLES="False",
        )


def _files_of(wheel: Path) -> set[str]:
    """The files of a wheel without its metadata."""
    with zipfile.ZipFile(wheel) as opened:
        return {name for name in opened.namelist() if ".dist-info/" not in name}


def _metadata(wheel: Path) -> str:
    with zipfile.ZipFile(wheel) as opened:
        (name,) = (each for each in opened.namelist() if each.endswith(".dist-info/METADATA"))
        return opened.read(name).decode()


def _files_in(folder: Path) -> set[str]:
    return {
        str(file.relative_to(folder.parent))
        for file in folder.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }


# ----- their contents


def test_both_have_the_same_version(wheels: tuple[Path, Path]) -> None:
    provider, local = wheels
    version = provider.name.split("-")[1]
    assert local.name.split("-")[1] == version
    said = _metadata(provider)
    assert f"Requires-Dist: kftrain-local=={version}; extra == 'local'" in said.splitlines()


def test_each_has_its_own_package_and_nothing_else(wheels: tuple[Path, Path]) -> None:
    provider, local = wheels
    assert _files_of(provider) == _files_in(_PROVIDER)
    assert "airflow_kftrain/static/training_tab.js" in _files_of(provider)
    assert _files_of(local) == _files_in(_LOCAL)
    for needed in ("server/api_server.py", "server/schemas.json", "agent/agent.py", "py.typed"):
        assert f"kftrain_local/{needed}" in _files_of(local)


def test_the_readme_for_package_indexes_has_no_links_to_files(
    wheels: tuple[Path, Path],
) -> None:
    for wheel in wheels:
        said = _metadata(wheel)
        assert "Author: The airflow-kftrain developers" in said.splitlines()
        assert not re.search(r"\]\((?!https?:|#)", said), wheel.name
    assert "[tutorial](docs/tutorial.md)" in (_ROOT / "README.md").read_text(encoding="utf-8")
    assert "| start | tutorial, " in _metadata(wheels[0])


def test_a_source_distribution_has_what_the_wheel_is_built_from(
    wheels: tuple[Path, Path], tmp_path: Path
) -> None:
    """It has no recordings, and builds the same wheel."""
    for wheel, root in zip(wheels, (_ROOT, _LOCAL.parent), strict=True):
        made = tmp_path / root.name
        words = (sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", made)
        done = subprocess.run(
            [*map(str, words)], cwd=root, capture_output=True, text=True, check=False
        )
        _must(done)
        (archive,) = made.glob("*.tar.gz")
        with tarfile.open(archive) as opened:
            names = {name.partition("/")[2] for name in opened.getnames()}
        package = {name for name in names if name.partition("/")[0].endswith(("train", "local"))}
        assert package == _files_of(wheel)
        about = {"PKG-INFO", "README.md", "LICENSE", "pyproject.toml", ".gitignore"}
        assert names - package <= about | {"hatch_build.py", "CHANGELOG.md"}
        pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index")
        _must(_call(*pip, "--no-build-isolation", "--wheel-dir", made, archive))
        (again,) = made.glob("*.whl")
        assert (again.name, _files_of(again)) == (wheel.name, _files_of(wheel))


def test_the_provider_brings_no_server(wheels: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(wheels[0]) as opened:
        for name in _files_of(wheels[0]):
            text = opened.read(name).decode()
            for word in ("aiohttp.web", "aiohttp import web", "start_server", "http.server"):
                assert word not in text, name


# ----- the provider alone


@pytest.fixture(scope="module")
def alone(wheels: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    folder = tmp_path_factory.mktemp("alone")
    (folder / "dags").mkdir()
    (folder / "dags" / "packaged.py").write_text(_DAG)
    return Environment(folder, wheels[0])


def test_the_provider_alone_says_what_it_can_do(alone: Environment) -> None:
    assert "airflow-kftrain run --help" in _must(alone("--help"))


def test_the_provider_alone_says_its_version(alone: Environment, wheels: tuple[Path, Path]) -> None:
    version = wheels[0].name.split("-")[1]
    assert _must(alone("--version")) == f"airflow-kftrain {version}\n"


def test_the_provider_alone_says_what_to_install_for_the_embedded_cluster(
    alone: Environment,
) -> None:
    assert "No module named 'kftrain_local'" in alone.python("import kftrain_local").stderr
    done = alone("local", "up")
    (line,) = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install kftrain-local" in line


_PLUGIN = """
from importlib.metadata import entry_points
(found,) = entry_points(group="airflow.plugins", name="kftrain")
print(found.load()().react_apps[0]["bundle_url"])
"""


def test_the_provider_alone_has_the_tab(
    alone: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__KFTRAIN__TASK_TAB", "True")
    assert "kftrain/training_tab.js?v=" in _must(alone.python(_PLUGIN))


def test_the_provider_alone_renders(alone: Environment) -> None:
    manifest = yaml.safe_load(_must(alone("render", "packaged", "train")))
    assert manifest["kind"] == "PyTorchJob"
    assert manifest["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 1


# ----- both


@pytest.fixture(scope="module")
def both(
    wheels: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Environment]:
    environment = Environment(tmp_path_factory.mktemp("both"), *wheels)
    yield environment
    _must(environment("local", "down"))


def test_both_run_a_job(both: Environment, tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(yaml.safe_dump(pytorch_job({"Master": replica("pytorch", "echo hello")})))
    assert "is ready" in _must(both("local", "up", "--detach"))
    lines = _must(both("local", "run", job)).splitlines()
    assert lines[0] == "pytorchjob/job created"
    assert "[job-master-0] hello" in lines
    assert lines[-1] == "Succeeded"
    assert "is gone" in _must(both("local", "down"))
