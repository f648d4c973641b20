"""`airflow-kftrain local ...`, as it is typed."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.cluster.jobs import pytorch_job
from tests.programs import ALL_REDUCE

_ROOT = Path(__file__).parents[2]
_PATIENCE = 60


class Local:
    """The command, for a cluster of a name of its own, whose folder is in a place of its own."""

    def __init__(self, temporary: Path) -> None:
        self.name = f"test-{secrets.token_hex(4)}"
        self.temporary = temporary

    def __call__(self, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "airflow_kftrain", "local", *words, "--name", self.name]
        return subprocess.run(
            command,
            input=given,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            cwd=_ROOT,
            env={**os.environ, "TMPDIR": str(self.temporary)},
            check=False,
        )

    def up(self, *words: str) -> int:
        """Its process."""
        done = self("up", "--detach", *words)
        assert done.returncode == 0, done.stderr
        return int(done.stdout.partition("process ")[2].split()[0])

    @property
    def processes(self) -> list[int]:
        """Those that know its folder, by their command or by a variable."""
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


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Local]:
    local = Local(tmp_path)
    yield local
    local("down")
    assert not local.files
    assert not local.processes


def _train(program: str, workers: int = 2) -> str:
    """A manifest, as YAML."""

    def role(count: int) -> dict[str, object]:
        env = [{"name": "RESULT_FILE", "value": "/dev/termination-log"}]
        command = ["python", "-c", program]
        main = {"name": "pytorch", "image": "x", "command": command, "env": env}
        template = {"spec": {"containers": [main]}}
        return {"replicas": count, "restartPolicy": "Never", "template": template}

    roles = {"Master": role(1), "Worker": role(workers)}
    return yaml.safe_dump(pytorch_job(roles, name="train"))


def test_a_job_is_followed_to_its_success(local: Local) -> None:
    local.up()
    done = local("run", "-", given=_train(ALL_REDUCE + "\nprint('sum', total)"))
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "pytorchjob/train created"
    assert "[train-master-0] sum 6" in lines
    assert lines[-1] == "Succeeded"


def test_the_job_of_the_documentation_runs(local: Local) -> None:
    page = (_ROOT / "docs" / "local-cluster.md").read_text(encoding="utf-8")
    manifest = page.partition("```yaml\n")[2].partition("```")[0]
    local.up()
    done = local("run", "-", given=manifest)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert {"[train-master-0] rank 0 of 2", "Succeeded"} <= set(lines)


def test_the_log_is_of_the_container_that_trains_also_after_a_restart(local: Local) -> None:
    local.up()
    again = local.temporary / "again"
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
    done = local("run", "-", given=yaml.safe_dump(pytorch_job({"Master": role}, name="train")))
    assert done.returncode == 0, done.stdout + done.stderr
    logged = [line for line in done.stdout.splitlines() if line.startswith("[")]
    assert logged == ["[train-master-0] first", "[train-master-0] second"]


def test_a_job_that_fails_is_told_with_its_cause(local: Local) -> None:
    local.up()
    program = "import sys; sys.exit('the loss is not a number')"
    done = local("run", "-", given=_train(program, workers=1))
    assert done.returncode == 1
    assert "PyTorchJob Failed" in done.stdout
    assert "exit code 1" in done.stdout
    assert "[train-master-0] the loss is not a number" in done.stdout


def test_two_clusters_side_by_side_know_nothing_of_each_other(local: Local, tmp_path: Path) -> None:
    other = Local(tmp_path)
    pids = {local.up(), other.up()}
    assert len(pids) == 2
    first, second = local("run", "-", given=_train("pass")), other("run", "-", given=_train("pass"))
    assert (first.returncode, second.returncode) == (0, 0)
    assert other("down").returncode == 0
    assert not other.files
    assert not other.processes
    assert "3 Succeeded" in local("status").stdout


def test_what_up_prints_is_a_connection_of_airflow(local: Local) -> None:
    said = local("up", "--detach").stdout
    line = next(line for line in said.splitlines() if "AIRFLOW_CONN_" in line)
    value = json.loads(line.partition("='")[2].rstrip("'"))
    kubeconfig = Path(value["extra"]["kube_config_path"])
    assert value["conn_type"] == "kubernetes"
    assert str(kubeconfig) == local("kubeconfig").stdout.strip()
    assert kubeconfig.stat().st_mode & 0o777 == 0o600
    assert kubeconfig.parent.stat().st_mode & 0o777 == 0o700


def test_the_namespace_is_that_of_the_manifest(local: Local) -> None:
    local.up()
    manifest = yaml.safe_load(_train("pass"))
    manifest["metadata"]["namespace"] = "kube-system"
    assert local("run", "-", given=yaml.safe_dump(manifest)).returncode == 0
    _refused(local("run", "-", "--namespace", "default", given=yaml.safe_dump(manifest)))


def test_dates_of_yaml_are_text(local: Local) -> None:
    local.up()
    manifest = _train("pass").replace(
        "name: train\n", "name: train\n  annotations: {d: 2020-01-01}\n"
    )
    assert "2020-01-01}" in manifest
    assert local("run", "-", given=manifest).returncode == 0


def test_a_log_may_hold_what_the_terminal_does_not_have(
    local: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    local.up()
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    done = local("run", "-", given=_train("import sys; sys.stdout.buffer.write(b'\\xc3\\xa9\\n')"))
    assert done.returncode == 0, done.stderr
    assert "[train-master-0] \\xe9" in done.stdout.splitlines()


def _following(local: Local, program: str, stdout: int) -> subprocess.Popen[str]:
    """`run` of a job with that program."""
    manifest = local.temporary / "train.yaml"
    manifest.write_text(_train(program, workers=1))
    return subprocess.Popen(
        [sys.executable, "-m", "airflow_kftrain", "local"]
        + ["run", str(manifest), "--name", local.name],
        text=True,
        cwd=_ROOT,
        env={**_unset("PYTHONUNBUFFERED"), "TMPDIR": str(local.temporary)},
        stdout=stdout,
        stderr=subprocess.PIPE,
    )


def _unset(name: str) -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key != name}


def test_lines_come_at_once_and_a_reader_may_leave(local: Local) -> None:
    local.up()
    go_on = local.temporary / "go-on"
    program = (
        "import os, time\n"
        "print('first', flush=True)\n"
        f"while not os.path.exists({str(go_on)!r}): time.sleep(0.01)\n"
        "for n in range(50): print(n, flush=True); time.sleep(0.01)"
    )
    with _following(local, program, stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        assert run.stderr is not None
        assert run.stdout.readline() == "pytorchjob/train created\n"
        # There while the program waits for more to happen.
        while not run.stdout.readline().endswith("first\n"):
            assert run.poll() is None
        run.stdout.close()
        go_on.touch()
        assert run.wait(_PATIENCE) == 1
        assert run.stderr.read() == ""


def test_who_follows_a_cluster_that_ends_is_told(local: Local) -> None:
    local.up()
    path = local.temporary / "alive"
    program = f"import time; open({str(path)!r}, 'w').close(); time.sleep(600)"
    with _following(local, program, stdout=subprocess.DEVNULL) as run:
        _until(path.exists)
        assert local("down").returncode == 0
        assert run.stderr is not None
        assert run.wait(10) == 2
        assert run.stderr.read().splitlines()[-1].startswith("error: ")


def test_down_ends_what_runs(local: Local) -> None:
    local.up()
    path = local.temporary / "alive"
    program = f"import time; open({str(path)!r}, 'w').close(); time.sleep(600)"
    following = subprocess.Popen(
        [sys.executable, "-m", "airflow_kftrain", "local", "run", "-", "--name", local.name],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=_ROOT,
        env={**os.environ, "TMPDIR": str(local.temporary)},
    )
    assert following.stdin is not None
    following.stdin.write(_train(program, workers=1).encode())
    following.stdin.close()
    _until(path.exists)
    following.send_signal(signal.SIGINT)
    assert following.wait(_PATIENCE) == 130
    assert local("down").returncode == 0


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
    _until(lambda: "time.sleep(600)" not in _commands())


def _create(kubeconfig: str, manifest: str) -> None:
    from tests.control_plane.api import Api

    server = yaml.safe_load(Path(kubeconfig).read_text())["clusters"][0]["cluster"]["server"]
    body = yaml.safe_load(manifest)
    body["metadata"]["namespace"] = "default"
    Api(server, None, None).create(body).required("a job")


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


# ----- what cannot be


def _refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
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
    for command in ("doctor", "local", "render", "sweep"):
        assert f"airflow-kftrain {command} --help" in asked.stdout


@pytest.mark.parametrize("word", ["up", "down", "status"])
@pytest.mark.parametrize("name", ["a/b", "..", "", "a b", "é", "x" * 300])
def test_a_name_that_is_none_is_refused(local: Local, word: str, name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "airflow_kftrain", "local", word, "--name", name],
        capture_output=True,
        text=True,
        timeout=_PATIENCE,
        cwd=_ROOT,
        check=False,
    )
    _refused(done, "--name", repr(name))


@pytest.mark.parametrize("word", ["status", "kubeconfig"])
def test_a_cluster_that_does_not_run_is_said_not_to(local: Local, word: str) -> None:
    _refused(local(word), local.name, "airflow-kftrain local up")


def test_a_second_cluster_of_a_name_is_refused(local: Local) -> None:
    local.up()
    _refused(local("up"), local.name, "runs already")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("a: [", ["not YAML"], id="broken"),
        pytest.param("- 1", ["one manifest"], id="list"),
        pytest.param("kind: Pod\napiVersion: v1", ["Pod"], id="pod"),
        pytest.param("apiVersion: kubeflow.org/v1\nkind: PyTorchJob", ["spec"], id="empty"),
    ],
)
def test_what_is_no_job_is_not_run(local: Local, text: str, words: list[str]) -> None:
    local.up()
    _refused(local("run", "-", given=text), *words)


def test_a_manifest_that_kubernetes_would_refuse_is_refused_in_its_words(local: Local) -> None:
    local.up()
    manifest = yaml.safe_load(_train("pass"))
    manifest["spec"]["pytorchReplicaSpecs"]["Master"]["replcas"] = 1
    done = local("run", "-", given=yaml.safe_dump(manifest))
    _refused(done, 'unknown field "spec.pytorchReplicaSpecs.Master.replcas"')


def test_a_file_that_is_not_there_is_named(local: Local) -> None:
    local.up()
    _refused(local("run", "no-such.yaml"), "no-such.yaml")
