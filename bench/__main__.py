"""python -m bench [--quick] [--part NAME ...]: runs the parts, prints a table, writes the page.

It fails if a part breaks, never because of a figure.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from bench import page
from bench.parts import PARTS, ROOT, Ran, run_part
from bench.plots import PLOTS

BUILD = ROOT / "build"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Measure what this package costs."
    )
    parser.add_argument("--quick", action="store_true", help="whether it works: a minute")
    parser.add_argument("--part", action="append", choices=PARTS, help="may be repeated (all)")
    return parser.parse_args()


def main() -> int:
    given = arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # parts are stopped, too
    names = [name for name in PARTS if name in (given.part or PARTS)]
    ran = [run_part(name, quick=given.quick) for name in names]
    broken = [each for each in ran if each.failure]
    machine = page.this_machine()
    write_json(ran, machine, quick=given.quick)
    is_whole = not given.quick and not broken and len(ran) == len(PARTS)
    folder = ROOT / "docs" if is_whole else BUILD
    page.write(folder, ran, machine)
    print("\n".join(page.printed([figure for each in ran for figure in each.figures])))
    print(
        f"\n{machine.text}\nWritten: {_short(BUILD / 'bench.json')}, {_short(folder / page.PAGE)}"
    )
    for each in broken:
        print(f"\nBROKEN: {each.part}, which ended with\n{each.failure}", file=sys.stderr)
    if not broken and not given.part and (absent := plots_without_figures(ran)):
        print(f"\nBROKEN: no figures for {', '.join(absent)}", file=sys.stderr)
        return 1
    return 1 if broken else 0


def write_json(ran: Sequence[Ran], machine: page.Machine, *, quick: bool) -> None:
    figures = [{"part": each.part, **figure._asdict()} for each in ran for figure in each.figures]
    BUILD.mkdir(parents=True, exist_ok=True)
    said = {"quick": quick, "machine": machine._asdict(), "figures": figures}
    (BUILD / "bench.json").write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")


def plots_without_figures(ran: Sequence[Ran]) -> list[str]:
    """The name of a figure may have changed."""
    figures = [figure for each in ran for figure in each.figures]
    return [plot.file for plot in PLOTS if not plot.figures(figures)]


def _short(file: Path) -> Path:
    return file.relative_to(ROOT)


if __name__ == "__main__":
    sys.exit(main())
