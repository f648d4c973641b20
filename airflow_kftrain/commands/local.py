"""`airflow-kftrain local ...`: the embedded cluster, if kftrain-local is installed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from airflow_kftrain.commands.run import of_kubeconfig, run_file

_NOT_INSTALLED = "the embedded cluster is not installed; install it: pip install kftrain-local"


def main(words: list[str]) -> int:
    try:
        from kftrain_local import command
    except ModuleNotFoundError as error:
        if error.name != "kftrain_local":
            raise
        sys.stderr.write(f"airflow-kftrain local: {_NOT_INSTALLED}\n")
        if words[:1] == ["env"]:  # `eval` of nothing succeeds
            sys.stdout.write("false\n")
        return 2
    return command.main(words, run=_run)


def _run(kubeconfig: Path, file: Path, namespace: str, is_up: Callable[[], bool]) -> int:
    return run_file(of_kubeconfig(kubeconfig), file, namespace, is_up)
