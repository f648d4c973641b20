"""Turns a function into what is sent to the pods: its source with its imports, or the name of its
module.

The code objects of the function say which names it uses, and the objects in memory say what these
are. So nothing is guessed from the source. A name that can neither be sent nor imported is
rejected, with its line.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from airflow_kftrain.errors import InvalidSpec, KfTrainError
from airflow_kftrain.specs.code import Function

_OWN_NAMES = frozenset({"__name__", "__file__", "__doc__", "__builtins__", "__package__"})
"""Every module has its own."""
_LOADS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
_CELLS = frozenset({"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF", "LOAD_CLOSURE"})
_NOT_IN_IMAGES = frozenset({"airflow", "airflow_kftrain"})
_ADVICE = (
    "Import it inside the function, move it into a file and add that to code=Code(files=[...]), or "
    "pass it as an argument."
)


class SourceChanged(KfTrainError):
    """The DAG file has changed since it was imported. The next try imports it again."""

    retryable = True


def check_callable(function: Any) -> FunctionType:
    """The function, if it can run as a job. Raises InvalidSpec."""
    name = getattr(function, "__name__", type(function).__name__)
    problem = _not_a_function(function)
    if not problem:
        for is_other, words in _OTHER_KINDS:
            if is_other(function):
                problem = words
                break
    if problem:
        raise InvalidSpec(
            name, f"cannot run as a job: it {problem}", advice="Write a plain function with def."
        )
    checked: FunctionType = function
    if checked.__code__.co_flags & inspect.CO_VARKEYWORDS:
        raise InvalidSpec(
            name,
            f"has the parameter **{parameter_names(checked)[-1]}, but Airflow's context is not in "
            "the pods",
            advice="Name each parameter that it needs, such as `ds` or `run_id`.",
        )
    return checked


def parameter_names(function: FunctionType) -> tuple[str, ...]:
    """Those that inspect.signature() finds, at a tenth of its cost. `*args` and `**kwargs` come
    last."""
    code = function.__code__
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return code.co_varnames[:count]


def _not_a_function(function: Any) -> str:
    if isinstance(function, FunctionType):
        return ""
    kind = type(function).__name__
    return f"is a {'bound method' if kind == 'method' else kind}"


_OTHER_KINDS: tuple[tuple[Callable[[FunctionType], bool], str], ...] = (
    (lambda function: function.__name__ == "<lambda>", "is a lambda"),
    (inspect.iscoroutinefunction, "is an async function"),
    (inspect.isasyncgenfunction, "is an async generator"),
    (inspect.isgeneratorfunction, "is a generator"),
    (lambda function: hasattr(function, "__wrapped__"), "is wrapped by another decorator"),
    (
        lambda function: not re.fullmatch(r"(.*<locals>\.)?\w+", function.__qualname__),
        "is a method",
    ),
)


def travels_by_name(function: FunctionType, dag_file: str) -> bool:
    """Whether the pod imports it: it is defined in another module than the DAG file."""
    module = sys.modules.get(function.__module__)
    if getattr(module, function.__qualname__, None) is not function:
        return False
    return not _is_same(function.__code__.co_filename, dag_file)


def check_needs(function: FunctionType, files: tuple[str, ...], dag_file: str) -> None:
    """Checks what is known when the file is parsed. A name that the DAG file defines further down
    is found when the task runs. Raises InvalidSpec."""
    if travels_by_name(function, dag_file):
        _check_module(function.__name__, sys.modules[function.__module__], files, dag_file)
        return
    _check_readable(function)
    if not _is_plain(function, files, dag_file):
        for _ in _imports(function, files, dag_file, complete=False):
            pass
    if (function.__defaults__ or function.__kwdefaults__) and not _has_plain_head(function):
        _Source(function, files, dag_file)


def take(function: FunctionType, files: tuple[str, ...], dag_file: str, arguments: str) -> Function:
    """The function as it is sent. Raises InvalidSpec and SourceChanged."""
    if travels_by_name(function, dag_file):
        _check_module(function.__name__, sys.modules[function.__module__], files, dag_file)
        return Function(function.__qualname__, function.__module__, arguments=arguments)
    _check_readable(function)
    imports = list(_imports(function, files, dag_file, complete=True))
    source = _Source(function, files, dag_file)
    stem = re.sub(r"\W", "_", Path(function.__code__.co_filename).stem)
    return Function(
        function.__name__,
        f"kftrain_{stem}",
        source.module([*imports, *source.imports]),
        Path(function.__code__.co_filename).name,
        arguments,
    )


# At parse, where hundreds of functions may be decorated: most of them are found to be in order
# without a look at their instructions and at the whole of their source.


def _is_plain(function: FunctionType, files: tuple[str, ...], dag_file: str) -> bool:
    """Whether all can be imported that has a name in it, be it only that of an attribute."""
    try:
        for name in {*_all_names(function.__code__), *function.__code__.co_freevars}:
            found = _find(function, name)
            if found is _BUILTIN or found is _UNKNOWN or name in _OWN_NAMES:
                continue
            _import_of(function, name, found, 0, (), files, dag_file)
    except InvalidSpec:
        return False
    return True


def _all_names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _all_names(const)


def _has_plain_head(function: FunctionType) -> bool:
    """Whether no default value uses a name, as far as the lines up to the colon tell."""
    import ast
    import linecache

    code, head = function.__code__, ""
    for line in linecache.getlines(code.co_filename)[code.co_firstlineno - 1 :]:
        if head or line.lstrip().startswith(f"def {code.co_name}("):
            head += line
            if line.rstrip().endswith(":"):
                break
    try:
        found: Any = ast.parse(f"{head.strip()} pass").body[0]
    except SyntaxError:
        return False
    defaults = [each for each in (*found.args.defaults, *found.args.kw_defaults) if each]
    return not any(isinstance(node, ast.Name) for each in defaults for node in ast.walk(each))


# The source


def _check_readable(function: FunctionType) -> None:
    file = function.__code__.co_filename
    if not os.path.isfile(file):
        raise InvalidSpec(
            function.__name__,
            "has no readable source",
            value=file,
            advice="Define it in a DAG file that is not zipped, or in a module of the image.",
        )


class _Source:
    """The lines of a function without its decorators."""

    def __init__(self, function: FunctionType, files: tuple[str, ...], dag_file: str) -> None:
        import ast
        import linecache

        self._function = function
        code = function.__code__
        linecache.checkcache(code.co_filename)
        lines = linecache.getlines(code.co_filename)[code.co_firstlineno - 1 :]
        self._nested = bool(lines) and lines[0][:1] in (" ", "\t")
        head = "if 1:\n" if self._nested else ""
        try:
            self._lines = inspect.getblock(lines)
            tree = ast.parse(head + "".join(self._lines)).body[0]
        except (SyntaxError, IndexError):
            raise self._changed() from None
        found: Any = tree.body[0] if isinstance(tree, ast.If) and self._nested else tree
        if not isinstance(found, ast.FunctionDef) or found.name != function.__name__:
            raise self._changed()
        decorators = found.lineno - 1 - bool(self._nested)
        self._lines[:decorators] = ["\n"] * decorators
        names = {
            name: (line + code.co_firstlineno - 1 - bool(self._nested), attributes)
            for default in (*found.args.defaults, *found.args.kw_defaults)
            if default is not None
            for name, line, attributes in _names(compile(ast.Expression(default), "", "eval"), ())
        }
        self.imports = [
            _import_of(function, name, value, line, attributes, files, dag_file)
            for name, (line, attributes) in names.items()
            if (value := _find(function, name)) is not _BUILTIN
        ]

    def module(self, imports: list[str]) -> str:
        """A module with the imports in its first line, and the function in the same lines as in the
        DAG file."""
        head = "; ".join(["from __future__ import annotations", *dict.fromkeys(imports)])
        before = self._before()
        self._check_same("".join([*before, *self._lines]))
        # The imports cannot share a line with "if 1:".
        before = ["\n"] * (2 - len(before)) + before
        return "".join([f"{head}\n", *before[1:], *self._lines])

    def _before(self) -> list[str]:
        before = ["\n"] * (self._function.__code__.co_firstlineno - 1)
        if self._nested:
            # Nested functions stay indented: otherwise strings of several lines would change.
            before[-1] = "if 1:\n"
        return before

    def _check_same(self, source: str) -> None:
        """Compares it with the imported code: the file may have been changed since. `source` keeps
        the line numbers, since Python 3.13 stores them in classes."""
        flags = self._function.__code__.co_flags & _future_flags()
        try:
            made = compile(source, "<function>", "exec", flags, dont_inherit=True)
        except SyntaxError:
            raise self._changed() from None
        same = [item for item in made.co_consts if isinstance(item, CodeType)]
        wanted = _fingerprint(self._function.__code__)
        if not any(_fingerprint(each) == wanted for each in same):
            raise self._changed()

    def _changed(self) -> SourceChanged:
        return SourceChanged(
            f"{self._function.__name__}: {self._function.__code__.co_filename} has been changed "
            "since it was imported. The next try imports it again."
        )


def _future_flags() -> int:
    import __future__

    return sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)


def _fingerprint(code: CodeType) -> tuple[Any, ...]:
    """Equal for the same source, whether its names are global or those of an outer function."""
    consts = [_fingerprint(c) if isinstance(c, CodeType) else _shown(c) for c in code.co_consts]
    names = {*code.co_names, *code.co_freevars}
    plain = [const for const in consts if isinstance(const, tuple) or "<locals>" not in const]
    return (code.co_name, code.co_varnames, sorted(names), plain)


def _shown(const: object) -> str:
    return repr(sorted(map(repr, const))) if isinstance(const, frozenset) else repr(const)


# What it needs

_BUILTIN: Any = object()
_UNKNOWN: Any = object()


def _imports(
    function: FunctionType, files: tuple[str, ...], dag_file: str, *, complete: bool
) -> Iterator[str]:
    for name, line, attributes in _names(function.__code__, function.__code__.co_freevars):
        found = _find(function, name)
        if found is _BUILTIN or name in _OWN_NAMES or name == function.__name__:
            continue
        if found is _UNKNOWN:
            if complete and name not in _set_globally(function.__code__):
                raise _refused(function, name, line, "it cannot be found")
            continue
        yield _import_of(function, name, found, line, attributes, files, dag_file)


def _find(function: FunctionType, name: str) -> Any:
    closure = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    if name in closure:
        try:
            return closure[name].cell_contents
        except ValueError:  # it is defined further down
            return _UNKNOWN
    if name in function.__globals__:
        return function.__globals__[name]
    import builtins

    return _BUILTIN if hasattr(builtins, name) else _UNKNOWN


def _names(code: CodeType, free: tuple[str, ...]) -> Iterator[tuple[str, int, tuple[str, ...]]]:
    """(name, line, possible attributes) for each name that is neither local nor built in."""
    import dis

    line, seen = code.co_firstlineno, set()
    own = set(code.co_cellvars)
    instructions = list(dis.get_instructions(code))
    stored = {each.argval for each in instructions if each.opname == "STORE_NAME"}
    for each in instructions:
        line = _line(each) or line
        name = each.argval
        from_outside = each.opname in _CELLS and name in free and name not in own
        if each.opname in _LOADS and name not in stored:
            from_outside = True
        if from_outside and name not in seen:
            seen.add(name)
            yield name, line, code.co_names
    for const in code.co_consts:
        if isinstance(const, CodeType):
            inner = tuple(name for name in const.co_freevars if name in free and name not in own)
            yield from _names(const, inner)


def _set_globally(code: CodeType) -> set[str]:
    """The global names that the function itself sets."""
    import dis

    names = {each.argval for each in dis.get_instructions(code) if each.opname == "STORE_GLOBAL"}
    return names.union(*(_set_globally(c) for c in code.co_consts if isinstance(c, CodeType)))


def _line(instruction: Any) -> int | None:
    positions = getattr(instruction, "positions", None)
    line = positions.lineno if positions else instruction.starts_line
    return line if isinstance(line, int) and not isinstance(line, bool) else None


def _import_of(
    function: FunctionType,
    name: str,
    found: Any,
    line: int,
    attributes: tuple[str, ...],
    files: tuple[str, ...],
    dag_file: str,
) -> str:
    """The import statement after which the name means the same in the pod. Raises InvalidSpec."""
    if found is _UNKNOWN:
        raise _refused(function, name, line, "it cannot be found")
    if isinstance(found, ModuleType):
        _refuse_airflow(function, name, line, found.__name__)
        _check_module(name, found, files, dag_file)
        deeper = [f"__import__({each!r})" for each in _submodules(found.__name__, attributes)]
        return "; ".join([*deeper, f"import {found.__name__} as {name}"])
    _refuse_airflow(function, name, line, type(found).__module__)
    module = getattr(found, "__module__", None)
    qualified = getattr(found, "__qualname__", None) or getattr(found, "__name__", None)
    if not isinstance(module, str) or not isinstance(qualified, str):
        raise _refused(function, name, line, f"the DAG file defines it ({type(found).__name__})")
    _refuse_airflow(function, name, line, module)
    home = sys.modules.get(module)
    if home is None or getattr(home, qualified, None) is not found or _is_dag_file(home, dag_file):
        kind = "class" if isinstance(found, type) else type(found).__name__
        raise _refused(function, name, line, f"the DAG file defines it ({kind})")
    _check_module(name, home, files, dag_file)
    return f"from {module} import {qualified} as {name}"


def _submodules(name: str, attributes: tuple[str, ...]) -> Iterator[str]:
    """`import xml.dom.minidom` binds only `xml`, but the submodules have to be imported, too."""
    for attribute in attributes:
        deeper = f"{name}.{attribute}"
        if isinstance(sys.modules.get(deeper), ModuleType):
            yield deeper
            yield from _submodules(deeper, attributes)


def _refuse_airflow(function: FunctionType, name: str, line: int, module: str) -> None:
    if module.partition(".")[0] in _NOT_IN_IMAGES:
        raise _refused(
            function,
            name,
            line,
            "it belongs to Airflow, which is not installed in the pods",
            "Pass its value as an argument.",
        )


def _refused(
    function: FunctionType, name: str, line: int, problem: str, advice: str = _ADVICE
) -> InvalidSpec:
    file = os.path.basename(function.__code__.co_filename)
    where = f"the function uses {name} in line {line} of {file}, but {problem}"
    return InvalidSpec(function.__name__, where, advice=advice)


def _is_dag_file(module: ModuleType, dag_file: str) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and _is_same(file, dag_file)


def _is_same(file: str, other: str) -> bool:
    return _real(file) == _real(other)


@lru_cache(maxsize=1024)
def _real(path: str) -> str:
    return os.path.realpath(path)


def _check_module(name: str, module: ModuleType, files: tuple[str, ...], dag_file: str) -> None:
    """Rejects a module beside the DAG file: the image does not contain it."""
    file = getattr(module, "__file__", None)
    if file is None or "site-packages" in file:
        return
    folder, here = _real(os.path.dirname(dag_file)), _real(file)
    if not here.startswith(f"{folder}{os.sep}"):
        return
    relative = os.path.relpath(here, folder)
    parts = Path(relative).parts
    if any(tuple(Path(each).parts) == parts[: len(Path(each).parts)] for each in files):
        return
    raise InvalidSpec(
        "code.files",
        f"the function needs {name} from {relative}, which is beside the DAG file and not in the "
        "pods",
        advice=f"Add code=Code(files=[{parts[0]!r}]).",
    )
