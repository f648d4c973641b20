"""What is sent of a function, and what is rejected."""

from __future__ import annotations

import asyncio
import functools
import inspect
import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_kftrain.errors import InvalidSpec
from airflow_kftrain.function_payload.source import (
    SourceChanged,
    check_callable,
    check_needs,
    parameter_names,
    take,
)
from tests.unit.function_payload.dag_files import imported

Load = Callable[..., Any]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Imports a DAG file as Airflow does, under a name of its own."""

    def do(text: str, name: str = "training", **others: str) -> ModuleType:
        monkeypatch.syspath_prepend(str(tmp_path))
        for other, content in others.items():
            (tmp_path / f"{other}.py").write_text(content, newline="")
        return imported(tmp_path / f"{name}.py", text)

    return do


def sent(module: ModuleType, name: str = "train", files: tuple[str, ...] = ()) -> Any:
    """The function as a pod would have it."""
    function = getattr(module, name)
    file = str(module.__file__)
    check_callable(function)
    check_needs(function, files, file)
    travelled = take(function, files, file, "{}")
    made = sys.modules[travelled.module] = ModuleType(travelled.module)
    exec(compile(travelled.source, "module.py", "exec"), vars(made))
    return getattr(made, travelled.name)


def refusal(module: ModuleType, name: str = "train", files: tuple[str, ...] = ()) -> str:
    with pytest.raises(InvalidSpec) as caught:
        sent(module, name, files)
    return str(caught.value)


def test_a_function_travels_with_the_imports_that_it_uses(load: Load) -> None:
    module = load(
        "import json\nimport os.path as place\nimport xml.dom.minidom\nimport unused_nowhere_else\n"
        "from collections import OrderedDict as Ordered\n\n"
        "def train(x):\n"
        "    def inner():\n"
        "        return [json.dumps(each) for each in Ordered(a=x)]\n"
        "    return inner(), place.join('a', 'b'), xml.dom.minidom.__name__\n",
        unused_nowhere_else="",
    )
    travelled = take(module.train, (), module.__file__, "{}")
    assert "unused_nowhere_else" not in travelled.source
    assert sent(module)(1) == (['"a"'], "a/b", "xml.dom.minidom")


def test_lines_are_those_of_the_dag_file(load: Load) -> None:
    module = load("import json\n\n\n\ndef train():\n    return json\n")
    assert sent(module).__code__.co_firstlineno == module.train.__code__.co_firstlineno == 5


def test_a_nested_function_keeps_its_texts_of_several_lines(load: Load) -> None:
    text = (
        "def outer():\n    import json\n    def train():\n"
        "        return '''\n      a\n    b''', json\n    return train\n"
    )
    module = load(f"{text}train = outer()\n")
    found, module_json = sent(module)()
    assert found == module.train()[0] == "\n      a\n    b"
    assert module_json.__name__ == "json"


def test_decorators_stay_behind_however_many_lines_they_have(load: Load) -> None:
    module = load(
        "def plain(**_):\n    return lambda function: function\n\n"
        "@plain(\n    a=1,\n)\n@plain()\ndef train(x=3):\n    return x\n"
    )
    function = sent(module)
    assert function() == 3
    assert function.__code__.co_firstlineno == 8


def test_annotations_are_not_evaluated_in_the_pod(load: Load) -> None:
    module = load("from decimal import Decimal\nx = Decimal\ndef train(a: x) -> x:\n    return 1\n")
    assert sent(module)(1) == 1


def test_a_function_may_call_itself_and_know_its_module(load: Load) -> None:
    module = load("def train(n):\n    return n and train(n - 1) or __name__\n")
    assert sent(module)(3) == "kftrain_training"


def test_names_that_a_default_value_binds_itself_are_no_needs(load: Load) -> None:
    module = load(
        "import xml.dom.minidom\n"
        "def train(a=lambda v: v + 1, b=[n * 2 for n in range(3)], c=xml.dom.minidom.Node):\n"
        "    return a(1), b, c.__name__\n"
    )
    function = sent(module)
    assert function() == (2, [0, 2, 4], "Node")


def test_a_function_may_set_global_names_of_its_own(load: Load) -> None:
    module = load(
        "def train():\n    global count\n    count = 1\n"
        "    def more():\n        return count + 1\n    return more()\n"
    )
    assert sent(module)() == 2


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("HELPER = 3\ndef train():\n    return HELPER\n", "uses HELPER in line 3"),
        ("def train(x):\n    return helper(x)\ndef helper(x): return x\n", "uses helper in line 2"),
        (
            "class Net: pass\ndef train():\n    return [Net() for _ in ()]\n",
            "the DAG file defines it (class)",
        ),
        ("RATE = 1\ndef train(x=RATE):\n    return x\n", "uses RATE in line 2"),
        (
            "def outer(n):\n    def train():\n        return n\n    return train\n"
            "train = outer(2)\n",
            "uses n in line 3",
        ),
        (
            "def train():\n    return nowhere\n",
            "uses nowhere in line 2 of training.py, but it cannot be found",
        ),
        ("def train():\n    class A:\n        b = HELPER\n    return A\nHELPER = 3\n", "HELPER"),
    ],
)
def test_what_is_the_dag_files_own_is_refused_with_its_line(
    load: Load, text: str, told: str
) -> None:
    said = refusal(load(text))
    assert told in said
    assert "Import it inside the function" in said


def test_an_attribute_of_the_name_of_a_helper_is_no_use_of_it(load: Load) -> None:
    module = load("real = object()\ndef train(x):\n    return x.real\n")
    assert sent(module)(3) == 3


def test_a_module_beside_the_dag_file_has_to_be_among_the_files(load: Load) -> None:
    module = load(
        "import nets\nfrom nets import fit\ndef train():\n    return nets.A, fit()\n",
        nets="A = 1\ndef fit(): return 2\n",
    )
    said = refusal(module)
    assert said.startswith("code.files: the function needs nets from nets.py")
    assert "Add code=Code(files=['nets.py'])." in said
    assert sent(module, files=("nets.py",))() == (1, 2)


def test_a_function_of_another_module_travels_by_its_name(load: Load) -> None:
    module = load("from heapq import heappush\nfrom shutil import copy as train\n")
    travelled = take(module.train, (), module.__file__, "{}")
    assert (travelled.module, travelled.name, travelled.source) == ("shutil", "copy", "")


async def _coroutine() -> None: ...


def _generator() -> Any:
    yield


def _decorated(function: Any) -> Any:
    @functools.wraps(function)
    def inner() -> Any:
        return function()

    return inner


class _Class:
    def method(self) -> None: ...


def _context(**context: Any) -> None: ...


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda: None, "is a lambda"),
        (_coroutine, "is an async function"),
        (_generator, "is a generator"),
        (_decorated(asyncio.run), "is wrapped by another decorator"),
        (_Class.method, "is a method"),
        (_Class().method, "is a bound method"),
        (functools.partial(print), "is a partial"),
        (_Class, "is a type"),
        (print, "is a builtin_function_or_method"),
        (_context, "has the parameter **context"),
    ],
)
def test_what_is_no_plain_function_is_refused(function: Any, told: str) -> None:
    with pytest.raises(InvalidSpec, match=told.replace("*", r"\*")):
        check_callable(function)


def test_a_function_without_a_file_is_refused() -> None:
    space: dict[str, Any] = {"__name__": "nowhere"}
    exec("def train(): pass", space)
    with pytest.raises(InvalidSpec, match="has no readable source"):
        check_needs(space["train"], (), "dag.py")


@pytest.mark.parametrize("text", ["def train():\n    return 2\n", "\n\n\n", "def other(): pass\n"])
def test_a_file_that_was_changed_since_is_for_the_next_try(load: Load, text: str) -> None:
    module = load("def train():\n    return 1\n")
    file = Path(str(module.__file__))
    file.write_text(text)
    with pytest.raises(SourceChanged) as caught:
        take(module.train, (), str(file), "{}")
    assert caught.value.retryable


_NUMBERS = itertools.count()
_TEXTS = st.text(
    alphabet=st.sampled_from("abc #$`'\"\\{}%\t\u00e4\u4e2d\U0001f600=;()[]\n"), max_size=40
)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    text=_TEXTS, nested=st.booleans(), tabs=st.booleans(), ending=st.sampled_from(["\n", "\r\n"])
)
def test_any_source_comes_out_such_that_the_function_returns_the_same(
    tmp_path: Path, text: str, nested: bool, tabs: bool, ending: str
) -> None:
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    lines = [
        "def train(x=[1], *, y: 'int' = 2):",
        '    # a comment with \' and """ and {{ x }}',
        "    from dataclasses import dataclass",
        "    @dataclass",
        "    class Point:",
        "        a: int",
        "        b: str = 'b # no comment'",
        "    def inner(z: int) -> str:",
        f"        return {text!r} + str(z)",
        f'    whole = """{quoted}"""',
        "    return x, y, Point(1), inner(3), whole, f'{y}#{{}}'",
    ]
    if nested:
        lines = ["def outer():", *(f"    {line}" for line in lines), "    return train"]
        lines.append("train = outer()")
    source = "\n".join(line.replace("    ", "\t") if tabs else line for line in lines)
    # Another file each time: Python would use its cache for a file with the same size and time.
    file = tmp_path / f"any_{next(_NUMBERS)}.py"
    module = imported(file, f"import json\n\n{source}\n".replace("\n", ending))
    expected = repr(module.train()).replace("outer.<locals>.", "")
    assert repr(sent(module)()) == expected


def test_the_names_of_parameters_are_those_of_the_signature() -> None:
    def of_all_kinds(a: int, /, b: int, *rest: int, c: int = 1, **more: int) -> None:
        local = a + b
        del local

    def of_none() -> None: ...

    for function in (of_all_kinds, of_none, parameter_names):
        names = list(inspect.signature(function).parameters)
        assert sorted(parameter_names(function)) == sorted(names)
