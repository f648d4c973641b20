"""Text of others, cut so that an event, a log and an exception stay readable."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone

LONGEST_LINE = 300


def one_line(text: str, longest: int = LONGEST_LINE) -> str:
    """The text without line breaks, cut at the end."""
    line = " ".join(_encodable(text[: 4 * longest]).split())
    return line if len(line) <= longest else f"{line[: longest - 3]}..."


def both_ends(text: str) -> str:
    """The text without line breaks, cut in the middle: of a refusal that was passed on several
    times the end says what is wrong."""
    line = " ".join(_encodable(text).split())
    if len(line) <= LONGEST_LINE:
        return line
    end = LONGEST_LINE // 3
    return f"{line[: LONGEST_LINE - end - 5]} ... {line[-end:]}"


def last_lines(text: str, lines: int, size: int) -> list[str]:
    """The last lines that are not empty, within `size` bytes; what is left out is marked.

    Of a progress bar, which draws over itself with carriage returns, only the last state is kept.
    """
    # Far more than can be shown, so that a log of gigabytes costs no more than a short one.
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


def place(replica: str, pod: str, container: str) -> str:
    """`worker-1 (pod train-worker-1, container pytorch)`."""
    where = [f"pod {pod}"] if pod != replica else []
    where += [f"container {container}"] if container else []
    return one_line(f"{replica} ({', '.join(where)})" if where else replica)


def moment(time: datetime) -> str:
    return time.astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


def sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _encodable(text: str) -> str:
    # JSON may carry half a surrogate pair, which no log handler can write.
    return text.encode("utf-8", "replace").decode("utf-8")
