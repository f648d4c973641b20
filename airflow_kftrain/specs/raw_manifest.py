"""RawManifest: a custom resource of a known kind as its author wrote it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_kftrain.errors import InvalidSpec
from airflow_kftrain.specs.code import Code, check_code
from airflow_kftrain.specs.later import LATER
from airflow_kftrain.specs.nouns import answering
from airflow_kftrain.specs.shapes import plain


@answering
@dataclass(frozen=True)
class RawManifest:
    """`manifest` is a dict, YAML text, or the path of a .yaml, .yml or .json file."""

    manifest: Mapping[str, Any] | str
    code: Code | None = None

    def __post_init__(self) -> None:
        if self.code is not None:
            object.__setattr__(self, "code", check_code("code", self.code))
        if self.manifest is LATER or isinstance(self.manifest, str | Mapping):
            return
        as_dict = plain(self.manifest)
        if not isinstance(as_dict, dict):
            raise InvalidSpec(
                "manifest",
                "must be a dict, YAML text or the path of a YAML file",
                value=self.manifest,
            )
        object.__setattr__(self, "manifest", as_dict)
