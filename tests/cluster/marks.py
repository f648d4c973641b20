"""Marks of scenarios."""

from __future__ import annotations

import pytest

needs_users = pytest.mark.real_only("the embedded cluster has no users: its path is the key")
