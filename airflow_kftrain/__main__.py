"""`airflow-kftrain`, also as `python -m airflow_kftrain`."""

from __future__ import annotations

import sys


def main(words: list[str] | None = None) -> int:
    words = sys.argv[1:] if words is None else words
    if words[:1] != ["local"]:
        print("usage: airflow-kftrain local up|down|status|kubeconfig|run ...", file=sys.stderr)  # noqa: T201
        return 0 if words in (["--help"], ["-h"]) else 2
    from airflow_kftrain.local.command import main as local

    return local(words[1:])


if __name__ == "__main__":
    sys.exit(main())
