"""Patches that merge items by their names, in cases without a scenario."""

from __future__ import annotations

from kftrain_local.server.patches import merge


def test_a_patch_puts_what_is_new_after_what_it_names_before() -> None:
    old = [{"name": "a"}, {"name": "b"}]
    for patch, names in (
        (["new"], ["new", "a", "b"]),
        (["a", "new"], ["a", "new", "b"]),
        (["b", "a"], ["a", "b"]),
    ):
        new = merge(old, [{"name": name} for name in patch], lists_by_name=True)
        assert [each["name"] for each in new] == names


def test_mounts_of_one_volume_are_told_apart_by_their_paths() -> None:
    mounts = [{"name": "v", "mountPath": path} for path in ("/a", "/b")]
    assert merge(mounts[:1], mounts[1:], lists_by_name=True) == [*reversed(mounts)]
