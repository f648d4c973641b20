"""A module beside the DAG file, for functions that bring it along."""

import random


def points(seed: int, count: int) -> list[tuple[float, float]]:
    """Points near the line y = 3x + 1."""
    dice = random.Random(seed)
    xs = [dice.random() for _ in range(count)]
    return [(x, 3 * x + 1 + dice.gauss(0, 0.01)) for x in xs]
