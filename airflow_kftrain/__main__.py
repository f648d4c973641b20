"""`airflow-kftrain`, also as `python -m airflow_kftrain`."""

from __future__ import annotations

import sys
from importlib import import_module

_HELP = """\
usage: airflow-kftrain COMMAND ...

  doctor   says what of a connection and its cluster works: airflow-kftrain doctor --help
  local    a cluster on this machine, for trying: airflow-kftrain local --help
  render   prints the manifest that a task would submit: airflow-kftrain render --help
  sweep    lists living jobs and their tasks, deletes orphans: airflow-kftrain sweep --help
"""
_COMMANDS = {
    "doctor": "airflow_kftrain.commands.doctor",
    "local": "airflow_kftrain.local.command",
    "render": "airflow_kftrain.commands.render",
    "sweep": "airflow_kftrain.commands.sweep",
}


def main(words: list[str] | None = None) -> int:
    words = sys.argv[1:] if words is None else words
    if words and words[0] in _COMMANDS:
        code: int = import_module(_COMMANDS[words[0]]).main(words[1:])
        return code
    asked = words in (["--help"], ["-h"])
    print(_HELP, end="", file=sys.stdout if asked else sys.stderr)
    return 0 if asked else 2


if __name__ == "__main__":
    sys.exit(main())
