"""Before any test: an Airflow home to be thrown away, and none of the developer's own settings."""

from __future__ import annotations

import os
import signal
import tempfile

import pytest
from hypothesis import settings

# How long an example takes says more about the machine than about the code.
settings.register_profile("kftrain", deadline=None)
settings.load_profile("kftrain")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--write-golden",
        action="store_true",
        help="write the golden manifests anew instead of comparing with them",
    )
    parser.addoption(
        "--record",
        action="store_true",
        help="tests/cluster writes its recordings anew, into tests/recordings",
    )
    parser.addoption(
        "--target",
        action="append",
        choices=("local", "real"),
        help="what tests/cluster, tests/frameworks and the fault matrix of tests/e2e run on "
        "(default: local); may be given twice",
    )


def pytest_configure(config: pytest.Config) -> None:
    # Whoever starts the tests in the background may have it ignored, which children inherit.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in list(os.environ):
        if name.startswith("AIRFLOW_"):
            del os.environ[name]
    home = tempfile.TemporaryDirectory(prefix="kftrain-airflow-")
    config.add_cleanup(home.cleanup)
    os.environ["AIRFLOW_HOME"] = home.name
