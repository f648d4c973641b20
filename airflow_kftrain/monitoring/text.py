"""Shortens texts of others, so that an event, a log and an exception stay readable."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from datetime import datetime, timezone

LONGEST_LINE = 300
WIDTH = 119
"""The longest line of a report, except for quoted ones."""
QUOTED = "    "
"""The indent of a line that is quoted."""


def one_line(text: str, longest: int = LONGEST_LINE) -> str:
    """The text without line breaks, cut at the end."""
    line = " ".join(_encodable(text[: 4 * longest]).split())
    return line if len(line) <= longest else f"{line[: longest - 3]}..."


def both_ends(text: str) -> str:
    """The text without line breaks, cut in the middle: if several programs have passed an error on,
    its end says what is wrong."""
    line = " ".join(_encodable(text).split())
    if len(line) <= LONGEST_LINE:
        return line
    end = LONGEST_LINE // 3
    return f"{line[: LONGEST_LINE - end - 5]} ... {line[-end:]}"


def last_lines(text: str, lines: int, size: int) -> list[str]:
    """The last non-empty lines, within `size` bytes; "..." marks omitted ones.

    A progress bar overwrites itself with carriage returns: only its last state is kept.
    """
    # Far more than can be shown, so a log of gigabytes costs no more than a short one.
    tail = _encodable(text[-10 * size :])
    drawn = [line.rstrip().rsplit("\r", 1)[-1] for line in tail.split("\n")]
    full = [line for line in drawn if line.strip()]
    kept: list[str] = []
    for line in reversed(full[-lines:]):
        shown = line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 3]}..."
        size -= len(shown.encode()) + 1
        if size < 0:
            break
        kept.append(shown)
    left_out = len(kept) < len(full) or len(tail) < len(text)
    return (["..."] if left_out else []) + kept[::-1]


def listed(names: Sequence[str], most: int = 3) -> str:
    """`a, b and 3 more`: the first few of many names."""
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[: most - 1])} and {len(names) - most + 1} more"


def place(replica: str, container: str) -> str:
    """`worker-1, container pytorch`."""
    return one_line(f"{replica}, container {container}" if container else replica)


def wrapped(text: str) -> str:
    """Wraps lines of more than WIDTH characters. Quoted lines stay as they were written."""
    lines = []
    for line in text.split("\n"):
        indent = line[: len(line) - len(line.lstrip(" "))]
        if len(line) <= WIDTH or len(indent) >= len(QUOTED):
            lines.append(line)
        else:
            lines += textwrap.wrap(
                line, WIDTH, subsequent_indent=f"{indent}  ", break_on_hyphens=False
            )
    return "\n".join(lines)


def moment(time: datetime) -> str:
    return time.astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


def sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _encodable(text: str) -> str:
    # JSON may contain half a surrogate pair, which log handlers cannot write.
    return text.encode("utf-8", "replace").decode("utf-8")


def duration(seconds: float) -> str:
    """3725 -> 1 h 2 min; 12.4 -> 12 s."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, left = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {left} s" if left else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"
