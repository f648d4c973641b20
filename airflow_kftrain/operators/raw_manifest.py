"""TrainingJobOperator: a job of any known kind, from its manifest."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_kftrain.errors import InvalidSpec
from airflow_kftrain.operators.training_job import BaseTrainingJobOperator
from airflow_kftrain.specs.raw_manifest import RawManifest

if TYPE_CHECKING:
    from airflow_kftrain.specs.code import Code


class TrainingJobOperator(BaseTrainingJobOperator):
    """Runs a job from its manifest: a dict, YAML text, or the path of a .yaml, .yml or .json file.
    Airflow looks for a relative path as for a template: in the folder of the DAG file, and in the
    DAG's template_searchpath. The content of the file is rendered."""

    spec_type = RawManifest
    spec_fields: ClassVar[tuple[str, ...]] = ("manifest", "code")
    # No template_ext: Airflow would treat a command that ends in .yaml as a file. And it reads
    # files when the DAG file is parsed, when a path may still be a template, and only for tasks
    # that are not mapped.
    template_fields: Sequence[str] = ("manifest", "code", *BaseTrainingJobOperator.template_fields)
    template_fields_renderers: ClassVar[dict[str, str]] = {"manifest": "yaml"}

    def __init__(
        self, *, manifest: Mapping[str, Any] | str, code: Code | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.manifest = manifest
        self.code = code
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
            advice="Put it into the folder of the DAG file or into the DAG's "
            "template_searchpath, or give its full path. The worker needs the file, too.",
        )
