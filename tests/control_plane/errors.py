"""All errors of the launcher. Every text is for the person at the terminal."""

from __future__ import annotations


class ControlPlaneError(Exception):
    """The control plane cannot be built, started or kept running."""

    exit_code = 1


class GoUnusable(ControlPlaneError):
    """There is no Go on this machine, or one that is too old. The exit code tells callers."""

    exit_code = 2


class BuildFailed(ControlPlaneError):
    """Go failed to build a binary."""


class Busy(ControlPlaneError):
    """Another control plane runs on this machine, and the caller did not want to wait."""


class NotReady(ControlPlaneError):
    """A part runs but does not answer as it should."""


class PartDied(ControlPlaneError):
    """A process of the control plane has ended by itself."""


class RefusedByApi(ControlPlaneError):
    """The API server rejected a request that the launcher itself needs."""
