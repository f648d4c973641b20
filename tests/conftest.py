"""Before any test: a temporary Airflow home, and none of the developer's own settings."""

from __future__ import annotations

import os
import signal
import tempfile

import pytest
from hypothesis import settings

# How long an example takes says more about the machine than about the code. Each change runs the
# unit tests on three Pythons (.ci/run), each with examples of its own.
settings.register_profile("kftrain", deadline=None, max_examples=50)
settings.load_profile("kftrain")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--write-golden",
        action="store_true",
        help="write the golden manifests anew instead of comparing with them",
    )
    parser.addoption(
        "--write-pictures",
        action="store_true",
        help="tests/e2e/test_training_tab.py writes the pictures in docs/images anew",
    )
    parser.addoption(
        "--record",
        action="store_true",
        help="tests/cluster writes its recordings anew, into tests/recordings, and the fault "
        "matrix the rows that it plays, into docs/faults.md",
    )
    parser.addoption(
        "--target",
        action="append",
        choices=("local", "real"),
        help="what tests/cluster, tests/frameworks and the fault matrix of tests/e2e run on "
        "(default: local); may be given twice",
    )


def pytest_configure(config: pytest.Config) -> None:
    # If the tests are started in the background, SIGINT may be ignored, and child processes inherit
    # that.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in list(os.environ):
        if name.startswith("AIRFLOW_"):
            del os.environ[name]
    home = tempfile.TemporaryDirectory(prefix="kftrain-airflow-")
    config.add_cleanup(home.cleanup)
    os.environ["AIRFLOW_HOME"] = home.name
