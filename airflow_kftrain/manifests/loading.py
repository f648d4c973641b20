"""Reads the files of authors. No other module of this layer reads files."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import dedent
from typing import Any

from airflow_kftrain.errors import InvalidSpec
from airflow_kftrain.specs.job import JobSpec
from airflow_kftrain.specs.later import LATER
from airflow_kftrain.specs.pods import Pod
from airflow_kftrain.specs.raw_manifest import RawManifest
from airflow_kftrain.specs.replicas import Replica

_ENDINGS = (".yaml", ".yml", ".json")
_MOST_PARTS = 100_000


def load_files(spec: Any) -> Any:
    """The spec with its files read: the file of a raw manifest, and each pod's `template_file`."""
    if isinstance(spec, RawManifest):
        return RawManifest(load_yaml("manifest", spec.manifest), spec.code)
    if not isinstance(spec, JobSpec):
        raise TypeError(f"a manifest is built from a spec, not from a {type(spec).__name__}")
    read: dict[str, Any] = {}
    for name, value in vars(spec).items():
        if isinstance(value, Pod):
            read[name] = _read_pod(name, value)
        elif isinstance(value, Replica) and isinstance(value.pod, Pod):
            read[name] = value._replace(pod=_read_pod(f"{name}.pod", value.pod))
    changed = {name: value for name, value in read.items() if value is not getattr(spec, name)}
    return with_fields(spec, changed) if changed else spec


def with_fields(spec: Any, changed: Mapping[str, Any]) -> Any:
    """A spec with other values, without its checks: they are made for what authors write, and have
    passed."""
    made = object.__new__(type(spec))
    for name, value in {**vars(spec), **changed}.items():
        object.__setattr__(made, name, value)
    return made


def load_yaml(field: str, source: Any) -> Any:
    """A dict is returned unchanged. Text is YAML, or the path of a file if it ends like one."""
    if source is LATER or isinstance(source, Mapping):
        return source
    if is_path(source):
        path = source.strip()
        return _parse(field, read_file(field, path), path)
    return _parse(field, dedent(source), "the text")


def is_path(source: Any) -> bool:
    """Whether text is the path of a file and not a manifest in YAML."""
    return (
        isinstance(source, str) and source.strip().endswith(_ENDINGS) and "\n" not in source.strip()
    )


def _read_pod(field: str, pod: Pod) -> Pod:
    if not isinstance(pod.template_file, str):
        return pod
    field = f"{field}.template_file"
    text = read_file(field, pod.template_file)
    read: Any = _parse(field, text, pod.template_file)
    return pod._replace(template_file=read)


def read_file(field: str, path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise InvalidSpec(
            field,
            f"cannot be read: {error.strerror}",
            value=path,
            advice="The file must be on the worker that runs the task; give its full path.",
        ) from error
    except ValueError as error:
        raise InvalidSpec(field, "is not the path of a UTF-8 text file", value=path) from error


def _check_nodes(field: str, origin: str, roots: list[Any]) -> None:
    """Rejects YAML that is valid but never intended: a key that occurs twice in a mapping, a part
    that contains itself, aliases that expand without end."""
    waiting: list[tuple[Any, tuple[int, ...]]] = [(node, ()) for node in roots if node]
    seen = 0
    while waiting:
        node, above = waiting.pop()
        seen += 1
        if id(node) in above or seen > _MOST_PARTS:
            raise InvalidSpec(field, f"{origin} expands without end: a part contains itself")
        if isinstance(node.value, list):
            _check_keys(field, origin, node.value)
            inside = (*above, id(node))
            waiting += [
                (item[-1] if isinstance(item, tuple) else item, inside) for item in node.value
            ]


def _check_keys(field: str, origin: str, items: list[Any]) -> None:
    keys = set()
    for key in (item[0] for item in items if isinstance(item, tuple)):
        if isinstance(key.value, str) and key.value in keys:
            line = key.start_mark.line + 1
            raise InvalidSpec(
                field, f"{origin} has a duplicate key, in line {line}", value=key.value
            )
        # A key may be a mapping, which is rejected later; "<<" may occur several times.
        if isinstance(key.value, str) and key.value != "<<":
            keys.add(key.value)


def _parse(field: str, text: str, origin: str) -> dict[str, Any]:
    import yaml  # slower than everything else in this layer, and few tasks need it

    try:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
        nodes = []
        while loader.check_node():
            nodes.append(loader.get_node())
        _check_nodes(field, origin, nodes)
        made = [loader.construct_document(node) for node in nodes]
        documents = [item for item in made if item is not None]
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, RecursionError) as error:
        # Without quoting the text, which may contain a secret: the messages about dates and other
        # tags do quote it.
        mark = getattr(error, "problem_mark", None)
        line = f" in line {mark.line + 1}" if mark else ""
        syntax = isinstance(error, yaml.scanner.ScannerError | yaml.parser.ParserError)
        problem = getattr(error, "problem", "") if syntax else "a value cannot be read"
        raise InvalidSpec(field, f"{origin} is not YAML{line}: {problem}") from None
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise InvalidSpec(
            field,
            f"{origin} must contain one mapping, but contains {len(documents)} documents"
            if len(documents) != 1
            else f"{origin} must contain a mapping, but contains a {type(documents[0]).__name__}",
        )
    return documents[0]
