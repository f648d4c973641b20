"""A real Kubernetes control plane with the real training operators, on this machine, for tests.

    from tests.control_plane import ControlPlane

    with ControlPlane("training-operator") as plane:
        print(plane.kubeconfig)

Everything is built from Go modules of exact versions (build.py). docs/control-plane.md says how to
use it by hand, and what it consists of.
"""

from __future__ import annotations

from tests.control_plane.api import Answer, Api
from tests.control_plane.errors import ControlPlaneError, GoUnusable, PartDied
from tests.control_plane.launcher import KUEUE, MPI_OPERATOR, PROFILES, ControlPlane

__all__ = [
    "KUEUE",
    "MPI_OPERATOR",
    "PROFILES",
    "Answer",
    "Api",
    "ControlPlane",
    "ControlPlaneError",
    "GoUnusable",
    "PartDied",
]
