"""reference.md, from the signatures and docstrings of everything public."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import is_dataclass
from importlib import import_module
from textwrap import dedent
from typing import Any, NamedTuple

import airflow_kftrain
from airflow_kftrain.operators.training_job import BaseTrainingJobOperator, JobOperator
from airflow_kftrain.specs.job import JobSpec

HEAD = """# Reference

Made by `make docs` from the signatures and docstrings of the package; do not edit by hand.

Everything here is imported from `airflow_kftrain`. Fields that hold others are *nouns*: they are
given by name (`RunPolicy(backoff_limit=2)`) and never change. What is left out has the default that
is shown. Templates and XComs are taken in almost every field, inside of nouns, too. Operators take
what Airflow's own take beside (`task_id`, `retries`, `execution_timeout`, `pool`, ...).
"""

SHARED = {
    BaseTrainingJobOperator: "Fields of all operators",
    JobOperator: "Fields of operators without a manifest",
}
"""What operators have in common, told once."""


class Field(NamedTuple):
    name: str
    type: str
    default: str | None
    """As it is written; None where it has to be given."""
    text: str


def page() -> str:
    """The whole page."""
    public = {name: getattr(airflow_kftrain, name) for name in airflow_kftrain.__all__}
    lines = [HEAD]
    for title, belongs in _CHAPTERS.items():
        lines += [f"## {title}", ""]
        for name in [name for name, thing in public.items() if belongs(thing)]:
            lines += [f"### {name}", "", *_section(public.pop(name)), ""]
        if belongs is _is_operator:
            for part, words in SHARED.items():
                lines += [f"### {words}", "", *map(_line, _parameters(part)), ""]
    assert not public, f"no chapter for {list(public)}"
    return "\n".join(lines)


def _is_operator(thing: Any) -> bool:
    return hasattr(thing, "template_fields")


def _is_noun(thing: Any) -> bool:
    return hasattr(thing, "_fields")


def _is_error(thing: Any) -> bool:
    return isinstance(thing, type) and issubclass(thing, Exception)


_CHAPTERS = {
    "Operators and sensor": _is_operator,
    "Nouns": _is_noun,
    "Jobs without an operator": is_dataclass,
    "Errors": _is_error,
    "Functions": inspect.isfunction,
}


def _section(thing: Any) -> Iterator[str]:
    yield _text(inspect.getdoc(thing))
    if inspect.isfunction(thing):
        yield f"\n`{thing.__name__}{inspect.signature(thing)}`"
    elif not _is_error(thing):
        yield ""
        own = _parameters(thing) if _is_operator(thing) else _attributes_of(thing)
        yield from map(_line, own)
        others = [_link(_title(part)) for part in thing.__mro__[1:] if _title(part)]
        if others:
            yield f"\nFurther: {', '.join(others)}."


def _line(field: Field) -> str:
    default = "" if field.default is None else f" = `{field.default}`"
    text = f"  \n  {field.text}" if field.text else ""
    return f"* **{field.name}**: {_type(field.type)}{default}{text}"


def _type(words: str) -> str:
    """With a link to the noun in it."""
    for name in re.findall(r"\w+", words):
        if _is_noun(getattr(airflow_kftrain, name, None)):
            before, _, after = words.partition(name)
            around = [f"`{part.strip()}`" if part else "" for part in (before, after)]
            return " ".join(part for part in (around[0], _link(name), around[1]) if part)
    return f"`{words}`"


def _link(title: str) -> str:
    return f"[{title}](#{title.lower().replace(' ', '-')})"


def _title(part: type) -> str:
    """Of the section that tells the fields of a class."""
    public = part.__name__ if part.__name__ in airflow_kftrain.__all__ else ""
    return SHARED.get(part, public)


def _attributes_of(thing: type) -> Iterator[Field]:
    """Its own, and those of what it takes from that has no section."""
    for part in thing.__mro__:
        if part is not thing and _title(part):
            return
        yield from _attributes(part)


def _attributes(part: type) -> Iterator[Field]:
    """Of a class body of ours: annotated names, each with the text that follows it."""
    if not part.__module__.startswith("airflow_kftrain"):
        return
    (tree,) = ast.parse(dedent(inspect.getsource(part))).body
    assert isinstance(tree, ast.ClassDef)
    for item, following in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            text = ""
            if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
                text = str(following.value.value)
            words = ast.unparse(item.annotation)
            yield Field(item.target.id, words, _default(part, item.value), _text(text))


def _parameters(part: type) -> list[Field]:
    """Of an operator: what its own constructor takes, described by its docstring or by the spec
    that has a field of that name."""
    (function,) = ast.parse(dedent(inspect.getsource(vars(part)["__init__"]))).body
    assert isinstance(function, ast.FunctionDef)
    spec = getattr(part, "spec_type", JobSpec)
    texts = {field.name: field.text for base in spec.__mro__ for field in _attributes(base)}
    texts |= _param_texts(inspect.getdoc(part) or "")
    given = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    return [
        Field(
            argument.arg,
            ast.unparse(argument.annotation) if argument.annotation else "Any",
            _default(part, default),
            texts.get(argument.arg, ""),
        )
        for argument, default in given
    ]


def _default(part: type, said: ast.expr | None) -> str | None:
    """As it is written, but for the name of a constant, which tells a reader nothing."""
    if isinstance(said, ast.Name):
        value = getattr(import_module(part.__module__), said.id)
        return value.__name__ if callable(value) else repr(value).replace("datetime.", "")
    return ast.unparse(said) if said else None


def _param_texts(docstring: str) -> dict[str, str]:
    parts = re.split(r"^:param (\w+):", docstring, flags=re.MULTILINE)
    return dict(zip(parts[1::2], map(_text, parts[2::2]), strict=True))


def _text(docstring: str | None) -> str:
    """In lines as long as they come, so that a change of one word is a change of one line."""
    text = (docstring or "").partition("\n:param ")[0]
    paragraphs = re.split(r"\n\s*\n", dedent(text).strip())
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
