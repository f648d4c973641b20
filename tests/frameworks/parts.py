"""What functions of tests/frameworks bring along: what a spawned process has to import."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch


class Numbers:
    """0, 1, 2, ..., which a process of its own reads."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return torch.tensor([float(index)])


def write_square(number: int, folder: str) -> None:
    (Path(folder) / str(number)).write_text(str(number**2), encoding="utf-8")
