"""`airflow-kftrain local ...`, as it is typed."""

from __future__ import annotations

import contextlib
import io
import json
import os
import secrets
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
import yaml

from airflow_kftrain.__main__ import main
from tests.cluster.jobs import pytorch_job
from tests.cluster.targets import LocalTarget
from tests.cluster.world import World
from tests.control_plane.api import Api, Manifest
from tests.programs import ALL_REDUCE

_ROOT = Path(__file__).parents[2]
_PATIENCE = 60

Done = subprocess.CompletedProcess[str]


class Local:
    """The command, for one cluster. A start of Python takes half a second of CPU, one of Airflow
    (`run`) seconds: only what is about the process is `typed`."""

    def __init__(self, name: str = "", temporary: Path | None = None) -> None:
        self.name = name or f"test-{secrets.token_hex(4)}"
        self.temporary = temporary or Path(tempfile.gettempdir())

    def __call__(self, *words: str, given: str = "", encoding: str = "utf-8") -> Done:
        """In this process, of which only the streams are not the terminal's."""
        out, errors = (io.TextIOWrapper(io.BytesIO(), encoding) for _ in range(2))
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AIRFLOW_CONN_KUBECONFIG", "")  # `run` sets it; taken back at the end
            patch.setattr(sys, "stdin", io.StringIO(given))
            patch.setattr(tempfile, "tempdir", str(self.temporary))
            patch.setenv("TMPDIR", str(self.temporary))
            with redirect_stdout(out), redirect_stderr(errors):
                code = main(self._words(*words))
        return subprocess.CompletedProcess(words, code, _read(out), _read(errors))

    def typed(self, *words: str) -> Done:
        with self.starting(*words) as process:
            try:
                out, errors = process.communicate(timeout=_PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return subprocess.CompletedProcess(words, process.returncode, out, errors)

    def starting(self, *words: str, stdout: int = subprocess.PIPE) -> subprocess.Popen[str]:
        env = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
        return subprocess.Popen(
            [sys.executable, "-m", "airflow_kftrain", *self._words(*words)],
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            cwd=_ROOT,
            env={**env, "TMPDIR": str(self.temporary)},
        )

    def _words(self, word: str, *more: str) -> list[str]:
        return ["local", word, "--name", self.name, *more]

    def up(self, *options: str) -> int:
        """Its process."""
        done = self.typed("up", "--detach", *options)
        assert done.returncode == 0, done.stderr
        return int(done.stdout.partition("process ")[2].split()[0])

    def write(self, manifest: str) -> str:
        """The file's path."""
        file = self.temporary / f"{secrets.token_hex(4)}.yaml"
        file.write_text(manifest)
        return str(file)

    @property
    def processes(self) -> list[int]:
        """The processes that refer to its folder, in their command or in a variable."""
        return [
            int(folder.name)
            for folder in Path("/proc").iterdir()
            if folder.name.isdigit() and self._knows(folder)
        ]

    def _knows(self, process: Path) -> bool:
        with contextlib.suppress(OSError):
            said = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
            return self.name.encode() in said and process.name != str(os.getpid())
        return False

    @property
    def files(self) -> list[Path]:
        return [*self.temporary.glob(f"*{self.name}*")]


def _read(stream: io.TextIOWrapper) -> str:
    stream.flush()
    stream.seek(0)
    return stream.read()


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Local]:
    """For a cluster of a name of its own, whose folder is in a place of its own."""
    local = Local(temporary=tmp_path)
    yield local
    local("down")
    assert not local.files
    assert not local.processes


@pytest.fixture
def running(target: LocalTarget) -> Local:
    """For the cluster that other tests use, too; jobs are in the namespace of the `world`."""
    return Local(target.cluster)


def _train(program: str, workers: int = 2, namespace: str = "default") -> str:
    """A manifest, as YAML."""

    def role(count: int) -> dict[str, object]:
        env = [{"name": "RESULT_FILE", "value": "/dev/termination-log"}]
        command = ["python", "-c", program]
        main = {"name": "pytorch", "image": "x", "command": command, "env": env}
        template = {"spec": {"containers": [main]}}
        return {"replicas": count, "restartPolicy": "Never", "template": template}

    roles = {"Master": role(1), "Worker": role(workers)}
    return _yaml(pytorch_job(roles, name="train"), namespace)


def _yaml(manifest: Manifest, namespace: str) -> str:
    manifest["metadata"]["namespace"] = namespace
    return yaml.safe_dump(manifest)


def test_from_up_to_down_as_it_is_typed(local: Local) -> None:
    local.up()
    done = local.typed("run", local.write(_train(ALL_REDUCE + "\nprint('sum', total)")))
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "pytorchjob/train created"
    assert "[train-master-0] sum 6" in lines
    assert lines[-1] == "Succeeded"
    down = local.typed("down")
    assert (down.returncode, down.stdout) == (0, f'cluster "{local.name}" is gone\n')
    assert not local.processes


def test_the_job_of_the_documentation_runs(running: Local, world: World) -> None:
    page = (_ROOT / "docs" / "local-cluster.md").read_text(encoding="utf-8")
    manifest = yaml.safe_load(page.partition("```yaml\n")[2].partition("```")[0])
    done = running("run", "-", given=_yaml(manifest, world.namespace))
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert {"[train-master-0] rank 0 of 2", "Succeeded"} <= set(lines)


def test_the_log_is_of_the_container_that_trains_also_after_a_restart(
    running: Local, world: World, tmp_path: Path
) -> None:
    again = tmp_path / "again"
    program = f"test -e {again} && echo second || (touch {again}; echo first; sleep 0.5; exit 130)"
    containers = [
        {"name": "beside", "image": "x", "command": ["echo", "no training"]},
        {"name": "pytorch", "image": "x", "command": ["sh", "-c", program]},
    ]
    role = {
        "replicas": 1,
        "restartPolicy": "ExitCode",
        "template": {"spec": {"containers": containers}},
    }
    manifest = _yaml(pytorch_job({"Master": role}, name="train"), world.namespace)
    done = running("run", "-", given=manifest)
    assert done.returncode == 0, done.stdout + done.stderr
    logged = [line for line in done.stdout.splitlines() if line.startswith("[")]
    assert logged == ["[train-master-0] first", "[train-master-0] second"]


def _with_volume(command: str, namespace: str, **volume: object) -> str:
    main = {
        "name": "pytorch",
        "image": "x",
        "command": ["sh", "-c", command],
        "volumeMounts": [{"name": "data", "mountPath": "/mnt/data"}],
    }
    spec = {"containers": [main], "volumes": [{"name": "data", **volume}]}
    role = {"replicas": 1, "restartPolicy": "Never", "template": {"spec": spec}}
    return _yaml(pytorch_job({"Master": role}, name=f"job-{secrets.token_hex(4)}"), namespace)


def test_a_host_path_is_a_folder_of_this_machine(
    running: Local, world: World, tmp_path: Path
) -> None:
    manifest = _with_volume(
        "echo trained > /mnt/data/model",
        world.namespace,
        hostPath={"path": str(tmp_path / "data")},
    )
    done = running("run", "-", given=manifest)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "data" / "model").read_text() == "trained\n"


def test_a_claim_is_a_folder_that_the_jobs_of_a_namespace_share(
    running: Local, world: World
) -> None:
    claim = {"persistentVolumeClaim": {"claimName": "models"}}
    write = _with_volume("echo one > /mnt/data/model", world.namespace, **claim)
    read = _with_volume("cat /mnt/data/model", world.namespace, **claim)
    elsewhere = _with_volume("ls -A /mnt/data", "default", **claim)
    first, second, third = (
        running("run", "-", given=manifest) for manifest in (write, read, elsewhere)
    )
    assert [each.returncode for each in (first, second, third)] == [0, 0, 0], second.stdout
    assert any(line.endswith("] one") for line in second.stdout.splitlines())
    assert not any(line.endswith("] model") for line in third.stdout.splitlines())


def test_the_folder_of_a_claim_can_be_chosen_and_stays(local: Local) -> None:
    folder = local.temporary / "models"
    folder.mkdir()
    local.up("--volume", f"models={folder}")
    claim = {"persistentVolumeClaim": {"claimName": "models"}}
    done = local("run", "-", given=_with_volume("echo one > /mnt/data/model", "default", **claim))
    assert done.returncode == 0, done.stdout + done.stderr
    assert local("down").returncode == 0
    assert (folder / "model").read_text() == "one\n"


def test_a_volume_that_is_not_supported_is_refused_when_the_job_is_created(
    running: Local, world: World
) -> None:
    manifest = _with_volume("true", world.namespace, nfs={"server": "s", "path": "/"})
    place = "spec.pytorchReplicaSpecs.Master.template.spec.volumes[0].nfs"
    _refused(running("run", "-", given=manifest), place, "hostPath")


@pytest.mark.parametrize("option", ["models", "=/tmp", "models=/no/such/folder"])
def test_a_volume_without_a_folder_is_named(local: Local, option: str) -> None:
    _refused(local("up", "--volume", option), "--volume", option, "NAME=DIR")


def test_two_clusters_side_by_side_know_nothing_of_each_other(
    running: Local, local: Local, world: World
) -> None:
    local.up()
    assert running("run", "-", given=_train("pass", namespace=world.namespace)).returncode == 0
    assert "pods: none" in local("status").stdout
    assert local("run", "-", given=_train("pass")).returncode == 0
    _until(lambda: "pods: 3 Succeeded" in local("status").stdout)  # the master may end first
    assert local("down").returncode == 0
    assert running("status").returncode == 0


def test_what_up_prints_is_a_connection_of_airflow(local: Local) -> None:
    said = local.typed("up", "--detach").stdout
    exports = [line.partition("export ")[2] for line in said.splitlines() if " AIRFLOW_" in line]
    assert local("env").stdout.splitlines() == [f"export {each}" for each in exports]
    (line,) = (each for each in exports if "AIRFLOW_CONN_" in each)
    value = json.loads(line.partition("='")[2].rstrip("'"))
    kubeconfig = Path(value["extra"]["kube_config_path"])
    assert value["conn_type"] == "kubernetes"
    assert str(kubeconfig) == local("kubeconfig").stdout.strip()
    assert line in local("status").stdout
    assert kubeconfig.stat().st_mode & 0o777 == 0o600
    assert kubeconfig.parent.stat().st_mode & 0o777 == 0o700


def test_the_namespace_is_that_of_the_manifest(running: Local, world: World) -> None:
    manifest = _train("pass", namespace=world.namespace)
    assert running("run", "-", given=manifest).returncode == 0
    assert world.find("PyTorchJob", "train", "kubeflow.org/v1")
    _refused(running("run", "-", "--namespace", "default", given=manifest))


def test_dates_of_yaml_are_text(running: Local, world: World) -> None:
    manifest = _train("pass", namespace=world.namespace).replace(
        "name: train\n", "name: train\n  annotations: {d: 2020-01-01}\n"
    )
    assert "2020-01-01}" in manifest
    assert running("run", "-", given=manifest).returncode == 0


def test_a_log_may_hold_what_the_terminal_does_not_have(running: Local, world: World) -> None:
    program = "import sys; sys.stdout.buffer.write(b'\\xc3\\xa9\\n')"
    manifest = _train(program, namespace=world.namespace)
    done = running("run", "-", given=manifest, encoding="ascii")
    assert done.returncode == 0, done.stderr
    assert "[train-master-0] \\xe9" in done.stdout.splitlines()


def test_lines_come_at_once_and_a_reader_may_leave(
    running: Local, world: World, tmp_path: Path
) -> None:
    go_on = tmp_path / "go-on"
    program = (
        "import os, time\n"
        "print('first', flush=True)\n"
        f"while not os.path.exists({str(go_on)!r}): time.sleep(0.01)\n"
        "for n in range(50): print(n, flush=True); time.sleep(0.01)"
    )
    manifest = tmp_path / "train.yaml"
    manifest.write_text(_train(program, workers=1, namespace=world.namespace))
    with running.starting("run", str(manifest)) as run:
        assert run.stdout is not None
        assert run.stderr is not None
        assert run.stdout.readline() == "pytorchjob/train created\n"
        # It exists while the program waits for more to happen.
        while not run.stdout.readline().endswith("first\n"):
            assert run.poll() is None
        run.stdout.close()
        go_on.touch()
        assert run.wait(_PATIENCE) == 1
        assert run.stderr.read() == ""


def test_down_ends_what_runs_and_who_follows_it_is_told(local: Local) -> None:
    local.up()
    path = local.temporary / "alive"
    program = f"import time; open({str(path)!r}, 'w').close(); time.sleep(600)"
    file = local.write(_train(program, workers=1))
    with local.starting("run", file, stdout=subprocess.DEVNULL) as run:
        _until(path.exists)
        assert local("down").returncode == 0
        assert run.stderr is not None
        assert run.wait(_PATIENCE) == 2
        assert run.stderr.read().splitlines()[-1].startswith("error: ")


def test_who_follows_a_job_may_leave_it_with_ctrl_c(
    running: Local, world: World, tmp_path: Path
) -> None:
    path, file = tmp_path / "alive", tmp_path / "train.yaml"
    program = f"import time; open({str(path)!r}, 'w').close(); time.sleep(600)"
    file.write_text(_train(program, workers=1, namespace=world.namespace))
    with running.starting("run", str(file), stdout=subprocess.DEVNULL) as run:
        _until(path.exists)
        run.send_signal(signal.SIGINT)
        assert run.wait(_PATIENCE) == 130
    assert world.find("PyTorchJob", "train", "kubeflow.org/v1")


def test_after_a_kill_the_next_up_sweeps(local: Local) -> None:
    pid = local.up()
    path = local.temporary / "alive"
    program = f"import time; open({str(path)!r}, 'w').close(); time.sleep(600)"
    kubeconfig = local("kubeconfig").stdout.strip()
    _create(kubeconfig, _train(program, workers=1))
    _until(path.exists)
    os.kill(pid, signal.SIGKILL)
    _until(lambda: not _runs(pid))
    assert local("status").returncode == 2
    assert local.up() != pid
    assert "pods: none" in local("status").stdout
    _until(lambda: str(path) not in _commands())


def _create(kubeconfig: str, manifest: str) -> None:
    server = yaml.safe_load(Path(kubeconfig).read_text())["clusters"][0]["cluster"]["server"]
    Api(server, None, None).create(yaml.safe_load(manifest)).required("a job")


def _until(look: object) -> None:
    assert callable(look)
    end = time.monotonic() + _PATIENCE
    while not look():
        assert time.monotonic() < end
        time.sleep(0.02)


def _runs(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def _commands() -> str:
    words = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words.append(file.read_bytes().decode(errors="replace"))
    return " ".join(words)


# ----- wrong input


def _refused(done: Done, *words: str) -> None:
    """One clear line, and the exit code for wrong input."""
    assert done.returncode == 2, done
    (line,) = done.stderr.strip().splitlines()
    for word in words:
        assert word in line


@pytest.mark.parametrize("detach", [[], ["--detach"]], ids=["foreground", "detached"])
def test_a_python_that_does_not_exist_is_named(local: Local, detach: list[str]) -> None:
    _refused(local("up", "--python", "/no/python", *detach), "/no/python", "not found")


@pytest.mark.parametrize("detach", [[], ["--detach"]], ids=["foreground", "detached"])
def test_a_port_in_use_is_named(local: Local, detach: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        _refused(local("up", "--api-port", port, *detach), f"port {port}", "in use")


def test_a_folder_that_cannot_be_made_is_named(local: Local) -> None:
    file = local.temporary / f"kftrain-{os.getuid()}-{local.name}"
    file.write_text("in the way")
    try:
        _refused(local("up"), str(file))
    finally:
        file.unlink()


@pytest.mark.parametrize(("option", "amount"), [("--cpu", "banana"), ("--memory", "0")])
def test_an_amount_that_is_none_is_named(local: Local, option: str, amount: str) -> None:
    _refused(local("up", option, amount), option, amount)


def test_help_is_printed_where_it_is_asked_for() -> None:
    def said(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "airflow_kftrain", *words]
        return subprocess.run(command, capture_output=True, text=True, cwd=_ROOT, check=False)

    asked, nothing, unknown = said("--help"), said(), said("remote")
    assert (asked.returncode, asked.stderr) == (0, "")
    assert (nothing.returncode, unknown.returncode) == (2, 2)
    assert asked.stdout == nothing.stderr == unknown.stderr
    for command in ("doctor", "local", "render", "run", "sweep"):
        assert f"airflow-kftrain {command} --help" in asked.stdout


@pytest.mark.parametrize("word", ["up", "down", "status"])
@pytest.mark.parametrize("name", ["a/b", "..", "", "a b", "é", "x" * 300])
def test_a_name_that_is_none_is_refused(local: Local, word: str, name: str) -> None:
    _refused(local(word, "--name", name), "--name", repr(name))


@pytest.mark.parametrize("word", ["status", "kubeconfig", "env"])
def test_a_cluster_that_does_not_run_is_said_not_to(local: Local, word: str) -> None:
    _refused(local(word), local.name, "airflow-kftrain local up")


def test_env_of_a_cluster_that_does_not_run_fails_where_it_is_evaluated(local: Local) -> None:
    """An `eval` of nothing succeeds, and Airflow would use whatever cluster the user has."""
    done = local("env")
    evaluated = subprocess.run(
        ["sh", "-c", f"eval {shlex.quote(done.stdout)} && echo went on"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (evaluated.returncode, evaluated.stdout, evaluated.stderr) == (1, "", "")


@pytest.mark.parametrize("detach", [[], ["--detach"]], ids=["foreground", "detached"])
def test_a_cluster_that_runs_is_told_again(local: Local, detach: list[str]) -> None:
    first = local.typed("up", "--detach")
    assert first.returncode == 0, first.stderr
    again = local("up", *detach)
    assert (again.returncode, again.stderr) == (0, "")
    assert "is already running" in again.stdout
    assert again.stdout.splitlines()[1:] == first.stdout.splitlines()[1:]


def test_a_second_cluster_of_a_name_with_other_options_is_refused(running: Local) -> None:
    _refused(running("up"), running.name, "is already running", "local down")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("a: [", ["not YAML"], id="broken"),
        pytest.param("- 1", ["one manifest"], id="list"),
        pytest.param("kind: Pod\napiVersion: v1", ["Pod"], id="pod"),
        pytest.param("apiVersion: kubeflow.org/v1\nkind: PyTorchJob", ["metadata"], id="empty"),
    ],
)
def test_what_is_no_job_is_not_run(running: Local, text: str, words: list[str]) -> None:
    _refused(running("run", "-", given=text), *words)


def test_a_file_that_is_not_there_is_named(running: Local) -> None:
    _refused(running("run", "no-such.yaml"), "no-such.yaml")
