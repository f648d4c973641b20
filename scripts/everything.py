"""Which suites of `make everything` have passed, and on what: .ci/everything.txt, a line a suite.

    python scripts/everything.py SUITE  notes that a suite has passed on this checkout
    python scripts/everything.py        says which have not run since something changed, and what

`.ci/run` uses both.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_FILE = _ROOT / ".ci" / "everything.txt"

_CODE = ("airflow_kftrain", "kftrain-local")
_CONSTRAINTS = ("constraints.txt", "pyproject.toml")
_ON_REAL = ("tests/cluster", "tests/control_plane")
SUITES = {
    "make test-e2e": ("tests/e2e", "tests/cluster", "demo", "example_dags"),
    "make test-real": ("tests/real", "tests/e2e", *_ON_REAL),
    "make test-postgres": ("tests/e2e", "tests/cluster"),
    "make test-frameworks": ("tests/frameworks", *_ON_REAL),
    "make test-pure on Python 3.10": ("tests/unit",),
    "make test-pure on Python 3.11": ("tests/unit",),
    "make test-pure on Python 3.12": ("tests/unit",),
}
"""What `.ci/run` leaves out, and where its tests are."""

Ran = Mapping[str, Mapping[str, str]]
"""Suite -> "code", "tests", ... -> what of it the suite ran on, in short."""


def not_run_since(noted: Ran, now: Ran) -> list[str]:
    """A line for each suite of this checkout that has not passed on what is there now."""
    lines = []
    for suite, what in now.items():
        changed = [name for name in what if what[name] != noted.get(suite, {}).get(name)]
        if suite not in noted:
            lines.append(f"{suite}: it is not noted that it ever ran")
        elif changed:
            lines.append(f"{suite}: changed since: {', '.join(changed)}")
    return lines


def read(text: str) -> dict[str, dict[str, str]]:
    lines = (line.partition(": ") for line in text.splitlines())
    return {suite: dict(word.split("=") for word in words.split()) for suite, _, words in lines}


def written(ran: Ran) -> str:
    """Sorted, so that a change of one suite changes one line."""
    return "".join(
        f"{suite}: {' '.join(f'{name}={value}' for name, value in what.items())}\n"
        for suite, what in sorted(ran.items())
    )


def _here(suite: str) -> dict[str, str]:
    return {
        "code": _digest(_CODE),
        "tests": _digest(SUITES[suite]),
        "constraints": _digest(_CONSTRAINTS),
        # Of .venv, unless the suite has one of its own.
        "python": suite.partition(" on Python ")[2] or ".".join(map(str, sys.version_info[:2])),
    }


def _digest(places: tuple[str, ...]) -> str:
    """Of the names and contents of all files there that git does not ignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *places]
    listed = subprocess.run(command, cwd=_ROOT, check=True, stdout=subprocess.PIPE).stdout
    names = sorted(name for name in listed.decode().split("\0") if (_ROOT / name).is_file())
    files = (f"{sha256((_ROOT / name).read_bytes()).hexdigest()} {name}\n" for name in names)
    return sha256("".join(files).encode()).hexdigest()[:12]


def main(suites: list[str]) -> None:
    noted = read(_FILE.read_text(encoding="utf-8")) if _FILE.exists() else {}
    if suites:
        noted |= {suite: _here(suite) for suite in suites}
        _FILE.write_text(written(noted), encoding="utf-8")
    else:
        sys.stdout.write("\n".join(not_run_since(noted, {suite: _here(suite) for suite in SUITES})))
        sys.stdout.write("\n")


if __name__ == "__main__":
    main(sys.argv[1:])
