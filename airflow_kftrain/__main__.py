"""The command `airflow-kftrain`, also `python -m airflow_kftrain`."""

from __future__ import annotations

import sys
from importlib import import_module

_HELP = """\
usage: airflow-kftrain COMMAND ...

  doctor   check a connection and its cluster: airflow-kftrain doctor --help
  local    run a cluster on this machine, for experiments: airflow-kftrain local --help
  render   print the manifest that a task would submit: airflow-kftrain render --help
  run      submit a manifest, and follow the job to its end: airflow-kftrain run --help
  sweep    list unfinished jobs and their tasks, delete orphans: airflow-kftrain sweep --help

airflow-kftrain --version prints the version.
"""
COMMANDS = {
    "doctor": "airflow_kftrain.commands.doctor",
    "local": "airflow_kftrain.commands.local",
    "render": "airflow_kftrain.commands.render",
    "run": "airflow_kftrain.commands.run",
    "sweep": "airflow_kftrain.commands.sweep",
}


def main(words: list[str] | None = None) -> int:
    words = sys.argv[1:] if words is None else words
    if words and words[0] in COMMANDS:
        code: int = import_module(COMMANDS[words[0]]).main(words[1:])
        return code
    if words == ["--version"]:
        from importlib.metadata import version

        sys.stdout.write(f"airflow-kftrain {version('airflow-kftrain')}\n")
        return 0
    asked = words in (["--help"], ["-h"])
    print(_HELP, end="", file=sys.stdout if asked else sys.stderr)
    return 0 if asked else 2


if __name__ == "__main__":
    sys.exit(main())
