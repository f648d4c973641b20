"""The base of all errors of the embedded cluster, its node agent and its fault proxy."""

from __future__ import annotations


class LocalError(Exception):
    """What went wrong, in one sentence. Commands print it and exit with 2."""
