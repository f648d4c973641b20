"""What can go wrong, as one tree. Every text is for the person at the terminal."""

from __future__ import annotations


class ControlPlaneError(Exception):
    """The control plane cannot be built, started or kept."""

    exit_code = 1


class GoUnusable(ControlPlaneError):
    """No Go on this machine, or one that is too old; with an exit code that callers can tell."""

    exit_code = 2


class BuildFailed(ControlPlaneError):
    """Go refused to build a binary."""


class Busy(ControlPlaneError):
    """Another control plane runs on this machine, and the caller did not want to wait."""


class NotReady(ControlPlaneError):
    """A part lives but does not answer as it should."""


class PartDied(ControlPlaneError):
    """A process of the control plane has ended by itself."""


class RefusedByApi(ControlPlaneError):
    """The API server refused what the launcher itself needs."""
