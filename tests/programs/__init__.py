"""The training programs of scenarios and benchmarks. They need only the standard library."""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).parent

ALL_REDUCE = (_FOLDER / "all_reduce.py").read_text(encoding="utf-8")
ALL_PEERS = (_FOLDER / "all_peers.py").read_text(encoding="utf-8")
