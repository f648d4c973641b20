"""The exit of a worker that has deferred, as its supervisor notices it: by the worker's sockets."""

import os
import select
import signal
import socket
import subprocess
import sys

import pytest

WORKER = """
import os, sys
from airflow_kftrain.airflow_compat import show_end_at_once
if sys.argv[1] == "shown":
    show_end_at_once()
os.write(2, b".")
if sys.argv[2] == "killed":
    os.kill(os.getpid(), 9)
"""


def worker(*words):
    ours, theirs = socket.socketpair()
    process = subprocess.Popen([sys.executable, "-c", WORKER, *words], stdout=theirs)
    theirs.close()
    return ours, process


def ended_when_its_socket_closes(ours, process):
    """Whether it has exited at that moment, without waiting: the supervisor checks only once."""
    ready, _, _ = select.select([ours], [], [], 60)
    assert ready
    assert ours.recv(1) == b""
    ours.close()
    return process.poll() is not None


@pytest.mark.parametrize("ends", ["by itself", "killed"])
def test_a_worker_has_ended_when_its_socket_closes(ends):
    """If it were stopped when the kernel has closed its files, it would not have exited."""
    ours, process = worker("shown", ends)
    assert ended_when_its_socket_closes(ours, process)
    assert process.returncode == (0 if ends == "by itself" else -signal.SIGKILL)


def test_outside_of_a_supervisor_no_process_is_left(tmp_path):
    with open(tmp_path / "stdout", "w") as file:
        subprocess.run(
            [sys.executable, "-c", WORKER, "shown", "by itself"], stdout=file, check=True
        )
    assert os.path.getsize(tmp_path / "stdout") == 0
