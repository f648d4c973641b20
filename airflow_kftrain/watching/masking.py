"""Masks in a triggerer what the worker has masked in the manifest.

Airflow masks the secrets that its own process has read. The triggerer, which shows the logs of
pods, has not read the Variables that the worker read when it rendered the task. So the order says
where in the manifest the worker masked something, and the secrets are read from the job itself.
Airflow's own masker is not used: it never forgets a secret, and a triggerer runs for months.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from urllib.parse import unquote

from airflow_kftrain.airflow_compat import redacted
from airflow_kftrain.errors import KfTrainError
from airflow_kftrain.hooks.training_job_async import AsyncTrainingJobHook
from airflow_kftrain.job_state import read_mapping
from airflow_kftrain.kinds import JobReference
from airflow_kftrain.manifests.places import texts_by_path
from airflow_kftrain.messages import MaskedText, Outcome, WatchOrder
from airflow_kftrain.monitoring.text import wrapped

MASK = "***"
_SHORTEST = 3
"""Anything shorter is not a secret, and occurs in every line."""
_LEFT_OUT = (
    "The output of pods is omitted: the job could not be read to find the secrets in its "
    "manifest, which Airflow masks."
)
_MASKS = re.compile(r"(?:\*\*\*)+")
_CUT = re.compile(r"( ?\.\.\.)")

Tell = Callable[[str], None]


class Mask:
    """The mask of one watch. It keeps the secrets only as long as the watch lasts."""

    __slots__ = ("_order", "_pattern", "_secrets", "is_known")

    def __init__(self, order: WatchOrder) -> None:
        self._order = order
        self._secrets: tuple[str, ...] = ()
        self._pattern: re.Pattern[str] | None = None
        self.is_known = not order.masked
        """Whether all secrets are known."""

    async def learn(self, hook: AsyncTrainingJobHook) -> bool:
        """Reads the job if necessary. Returns whether all secrets are known."""
        if self.is_known:
            return True
        order = self._order
        try:
            job = await hook.get(order.kind, order.job.namespace, order.job.name)
        except KfTrainError:
            return False
        root = read_mapping(job)
        if read_mapping(root.get("metadata")).get("uid") != order.job.uid:
            return False
        texts = dict(texts_by_path(read_mapping(root.get("spec"))))
        self.is_known = all(each.path in texts for each in order.masked)
        self._take(find_secrets(order.masked, texts))
        return self.is_known

    def _take(self, secrets: Iterable[str]) -> None:
        # The longest first: one may be part of another.
        self._secrets = tuple(sorted(set(secrets), key=lambda each: (-len(each), each)))
        if self._secrets:
            self._pattern = re.compile("|".join(map(re.escape, self._secrets)))

    def __call__(self, text: str) -> str:
        if self._pattern is None or not text:
            return text
        parts = _CUT.split(self._pattern.sub(MASK, text))
        # A truncated line may end in the middle of a secret.
        parts[:-1] = [self._without_beginning(part) for part in parts[:-1]]
        return "".join(parts)

    def _without_beginning(self, text: str) -> str:
        for secret in self._secrets:
            begins = secret[:_SHORTEST]
            start = text.find(begins, max(len(text) - len(secret), 0))
            while start >= 0:
                if secret.startswith(text[start:]):
                    return text[:start] + MASK
                start = text.find(begins, start + 1)
        return text

    def telling(self, tell: Tell) -> Tell:
        return (lambda line: tell(self(line))) if self._order.masked else tell

    def own_line(self, line: str) -> str:
        """A line of ours for the task's log. Secrets are masked first: one that is wrapped over two
        lines would not be found."""
        return wrapped(redacted(self(line)))

    def outcome(self, outcome: Outcome) -> Outcome:
        """The outcome as it may be stored: Airflow stores events in plain text. The result stays
        unchanged: it is a value of the author."""
        if not self.is_known:
            outcome = outcome._replace(report=f"{outcome.report}\n{_LEFT_OUT}")
        if self._pattern is None:
            return outcome
        return outcome._replace(
            words=self(outcome.words), report=self(outcome.report), tail=self(outcome.tail)
        )


_NOTHING_MASKED = Mask(WatchOrder(JobReference("", "", "", ""), ""))


def mask_for(order: WatchOrder) -> Mask:
    """Most orders share one mask, since there may be thousands."""
    return Mask(order) if order.masked else _NOTHING_MASKED


def find_secrets(masked: Iterable[MaskedText], texts: dict[str, str]) -> Iterator[str]:
    """The secrets, in every form in which they may occur in a line."""
    for each in masked:
        for part in hidden_parts(each.shown, texts.get(each.path, "")):
            # Logs are shown line by line, and URLs contain quoted values.
            lines = [line.strip() for line in part.splitlines()]
            for secret in (*lines, *map(unquote, lines)):
                if len(secret) >= _SHORTEST:
                    yield secret


def hidden_parts(shown: str, text: str) -> list[str]:
    """The parts of `text` for which `shown` has stars. If there are two ways to read that, as in
    `***:***`, both count."""
    first, *between = _MASKS.split(shown)
    if not between:
        return []
    last = between.pop()
    if not (text.startswith(first) and text[len(first) :].endswith(last)):
        return [text]
    text = text[len(first) : len(text) - len(last)]
    found, rest = [], text
    for literal in between:
        part, _, rest = rest.partition(literal)
        found.append(part)
    found.append(rest)
    rest = text
    for literal in reversed(between):
        rest, _, part = rest.rpartition(literal)
        found.append(part)
    return [*found, rest]
