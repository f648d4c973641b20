"""`airflow-kftrain`, also as `python -m airflow_kftrain`."""

from __future__ import annotations

import sys

_HELP = """\
usage: airflow-kftrain COMMAND ...

  doctor   says what of a connection and its cluster works: airflow-kftrain doctor --help
  local    a cluster on this machine, for trying: airflow-kftrain local --help
  render   prints the manifest that a task would submit: airflow-kftrain render --help
  sweep    lists living jobs and their tasks, deletes orphans: airflow-kftrain sweep --help
"""


def main(words: list[str] | None = None) -> int:
    words = sys.argv[1:] if words is None else words
    if words[:1] == ["local"]:
        from airflow_kftrain.local.command import main as local

        return local(words[1:])
    if words[:1] == ["doctor"]:
        from airflow_kftrain.commands.doctor import main as doctor

        return doctor(words[1:])
    if words[:1] == ["sweep"]:
        from airflow_kftrain.commands.sweep import main as sweep

        return sweep(words[1:])
    if words[:1] == ["render"]:
        from airflow_kftrain.commands.render import main as render

        return render(words[1:])
    asked = words in (["--help"], ["-h"])
    print(_HELP, end="", file=sys.stdout if asked else sys.stderr)
    return 0 if asked else 2


if __name__ == "__main__":
    sys.exit(main())
