"""Times as the API writes them."""

from __future__ import annotations

from datetime import datetime, timezone


def now_text() -> str:
    return time_text(datetime.now(timezone.utc))


def time_text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def time_of(text: str) -> datetime:
    # Python 3.10 cannot parse the Z.
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def seconds_since(text: str) -> float:
    return (datetime.now(timezone.utc) - time_of(text)).total_seconds()
