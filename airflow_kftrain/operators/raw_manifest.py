"""TrainingJobOperator: a job of any known kind, from its manifest."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from airflow_kftrain.errors import InvalidSpec
from airflow_kftrain.operators.training_job import BaseTrainingJobOperator
from airflow_kftrain.specs.raw_manifest import RawManifest


class TrainingJobOperator(BaseTrainingJobOperator):
    """A job from its manifest: a dict, YAML text, or the path of a .yaml, .yml or .json file. A
    relative path is looked up as Airflow looks up templates: beside the DAG file, and in the DAG's
    template_searchpath. What the file holds is rendered."""

    spec_type = RawManifest
    spec_fields: ClassVar[tuple[str, ...]] = ("manifest",)
    # No template_ext: Airflow would read a command that ends in .yaml as a file, and it reads at
    # parse, when a path may still be a template, and only for tasks that are not mapped.
    template_fields: Sequence[str] = ("manifest", *BaseTrainingJobOperator.template_fields)
    template_fields_renderers: ClassVar[dict[str, str]] = {"manifest": "yaml"}

    def __init__(self, *, manifest: Mapping[str, Any] | str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.manifest = manifest
        self.check_at_parse()

    def read_files(self, context: Any) -> None:
        from airflow_kftrain.manifests.loading import is_path

        if not isinstance(self.manifest, str) or not is_path(self.manifest):
            return
        found = self._look_up(self.manifest.strip())
        self.manifest = found if context is None else self.render_template(found, context)

    def _look_up(self, path: str) -> str:
        from airflow_kftrain.manifests.loading import read_file

        folders = getattr(self.get_template_env().loader, "searchpath", [])
        for folder in ["", *folders] if os.path.isabs(path) else folders:
            if os.path.isfile(whole := os.path.join(folder, path)):
                return read_file("manifest", whole)
        raise InvalidSpec(
            "manifest",
            "there is no such file",
            value=path,
            advice="Put it beside the DAG file or into the DAG's template_searchpath, or give its "
            "full path; it has to be there for the worker, too.",
        )
