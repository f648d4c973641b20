"""A function as a task: what is rejected, and when; what Airflow sees; what happens to the
value."""

from __future__ import annotations

import inspect
import json
import re
import zlib
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from airflow.sdk import BaseOperator

from airflow_kftrain import InvalidSpec, decorators
from airflow_kftrain.airflow_compat import exceptions
from airflow_kftrain.function_payload.message import Returned
from airflow_kftrain.manifests import build_manifest
from airflow_kftrain.manifests.code import CODE_ANNOTATION
from airflow_kftrain.operators import function as functions
from airflow_kftrain.operators.ending import NoValue, _returned
from airflow_kftrain.operators.function import FunctionOperator
from airflow_kftrain.provider_info import get_provider_info
from tests.unit.function_payload.dag_files import imported

KINDS = {
    "pytorch": ("PyTorchFunctionOperator", "workers=1"),
    "tensorflow": ("TFFunctionOperator", "workers=1"),
    "mpi": ("MPIFunctionOperator", "workers=1"),
    "horovod": ("HorovodFunctionOperator", "workers=1"),
    "trainjob": ("TrainFunctionOperator", "runtime='torch-distributed'"),
}
HEAD = """\
from airflow.sdk import DAG, dag, task
from airflow_kftrain import Code, Elastic, RunPolicy
import json

PYTORCH = {"image": "i", "workers": 1}

"""
Parse = Callable[..., ModuleType]


@pytest.fixture
def parse(tmp_path: Path) -> Parse:
    """Parses a DAG file."""

    def do(text: str) -> ModuleType:
        return imported(tmp_path / "training.py", HEAD + text)

    return do


def carried(operator: Any) -> dict[str, Any]:
    """The payload that the pods of the job would get."""
    operator.read_files(None)
    manifest = build_manifest(operator.spec(), folder=operator.files_folder())
    text = next(iter(_notes(manifest)))
    found: dict[str, Any] = json.loads(zlib.decompress(b64decode(text)))
    return found


def _notes(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value[CODE_ANNOTATION]] if CODE_ANNOTATION in value else []
        return own + [note for item in value.values() for note in _notes(item)]
    return [note for item in value for note in _notes(item)] if isinstance(value, list) else []


@pytest.mark.parametrize("name", KINDS)
def test_each_kind_has_its_decorator(parse: Parse, name: str) -> None:
    operator, given = KINDS[name]
    module = parse(
        "with DAG('d') as dag:\n"
        f"    @task.{name}(image='i', {given}, retries=3)\n"
        "    def train(rate: float):\n        return json.dumps(rate)\n"
        "    train(0.5)\n"
    )
    made = module.dag.get_task("train")
    assert type(made) is getattr(functions, operator)
    assert (made.retries, made.custom_operator_name) == (3, f"@task.{name}")
    payload = carried(made)
    assert json.loads(payload["function"]["arguments"]) == {"args": [0.5], "kwargs": {}}
    source = payload["files"][".kftrain/modules/kftrain_training.py"][0]
    assert source.splitlines()[0] == "from __future__ import annotations; import json as json"


def test_airflow_is_told_of_all_of_them() -> None:
    told = {each["name"]: each["class-name"] for each in get_provider_info()["task-decorators"]}
    assert told == {name: f"airflow_kftrain.decorators.{name}" for name in KINDS}
    assert all(callable(getattr(decorators, name)) for name in told)


@pytest.mark.parametrize("name", KINDS)
def test_a_decorator_takes_what_its_operator_takes(name: str) -> None:
    """Except the parameters that the function replaces. The types are read as text: they are for
    editors."""
    source = inspect.getsource(decorators)
    own = source.partition(f"def {name}(")[2].partition("Unpack[")[2].partition("]")[0]
    typed: set[str] = set()
    while own != "TypedDict":
        text = re.split("\n\n    class |\n\n\n", source.partition(f"class {own}(")[2])[0]
        typed |= {
            line.strip().partition(":")[0]
            for line in text.splitlines()
            if line.startswith(" " * 8) and line[8].isalpha()
        }
        own = text.partition(",")[0]
    operator = getattr(functions, KINDS[name][0])
    taken: set[str] = set()
    for base in operator.__mro__:
        if base.__module__.startswith("airflow_kftrain"):
            taken |= set(inspect.signature(base.__init__).parameters)
    taken -= {"self", "kwargs", "args", "command", "python_callable"}
    of_airflow = set(inspect.signature(BaseOperator.__init__).parameters)
    assert taken - typed == set()
    assert typed - taken - of_airflow - {"multiple_outputs", "on_skipped_callback"} == set()


@pytest.mark.parametrize(
    ("function", "told"),
    [
        ("def train():\n    return HEAD\nHEAD = 1", ""),
        ("def train():\n    return PYTORCH", "uses PYTORCH in line 10 of training.py"),
        ("def train(ti):\n    return 1", "train: asks for ti from Airflow's context"),
        ("def train(*, logical_date=None):\n    return 1", "asks for logical_date"),
        ("def train(**context):\n    return 1", r"has the parameter \*\*context"),
        (
            "def train():\n    return Code()",
            "uses Code in line 10 .*Airflow, which is not installed in",
        ),
        ("async def train():\n    return 1", "is an async function"),
        ("class A:\n    def train(self): ...\ntrain = A.train", "is a method"),
    ],
)
def test_what_cannot_be_a_job_is_refused_when_it_is_decorated(
    parse: Parse, function: str, told: str
) -> None:
    decorated = f"{function}\ntask.pytorch(**PYTORCH)(train)\n"
    if "class" not in function:
        decorated = f"@task.pytorch(**PYTORCH)\n{function}\n"
    if not told:
        parse(f"with DAG('d') as dag:\n    pass\n{decorated}")
        return
    with pytest.raises(InvalidSpec, match=told):
        parse(f"\n{decorated}")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "from airflow_kftrain import PyTorchJobOperator\n"
            "first = PyTorchJobOperator(task_id='first', image='i', workers=1)\n"
            "@task.pytorch(**PYTORCH)\ndef train():\n    return first.task_id\n",
            "train: the function uses first in line 11 .* it belongs to Airflow",
        ),
        (
            "with DAG('d') as dag:\n"
            "    @task.pytorch(**PYTORCH)\n    def train():\n        return dag.dag_id\n"
            "    train()\n",
            "train: the function uses dag in line 10 .* it belongs to Airflow",
        ),
        (
            "@dag(schedule=None)\ndef training():\n"
            "    rate = 0.5\n"
            "    @task.pytorch(**PYTORCH)\n    def train():\n        return rate\n"
            "    train()\n"
            "training()\n",
            "train: the function uses rate in line 12 .* but the DAG file defines it .float",
        ),
        (
            "def helper(): ...\n@task.pytorch(**PYTORCH)\ndef train():\n    helper()\n",
            "train: the function uses helper in line 10 .* but the DAG file defines it .function",
        ),
        ("task.pytorch(**PYTORCH)(lambda: 1)\n", "<lambda>: cannot run as a job: it is a lambda"),
    ],
    ids=["operator", "dag", "closure", "helper", "lambda"],
)
def test_what_a_function_may_not_use_is_refused_when_it_is_decorated(
    parse: Parse, text: str, told: str
) -> None:
    with pytest.raises(InvalidSpec, match=told):
        parse(text)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("train((1, 2))", "argument 1: is of type tuple"),
        ("train(x={1: 2})", r"x\[1\]: has a key of type int"),
    ],
)
def test_arguments_that_json_would_change_are_refused_at_parse(
    parse: Parse, call: str, told: str
) -> None:
    with pytest.raises(InvalidSpec, match=told):
        parse(
            "with DAG('d') as dag:\n    @task.pytorch(**PYTORCH)\n"
            f"    def train(x): ...\n    {call}\n"
        )


def test_a_command_beside_a_function_is_refused(parse: Parse) -> None:
    with pytest.raises(InvalidSpec, match="command: cannot be combined with a function"):
        parse(
            "with DAG('d'):\n    @task.pytorch(**PYTORCH, command=['a'])\n"
            "    def f(): ...\n    f()\n"
        )


def test_a_clean_up_that_would_lose_the_value_is_refused(parse: Parse) -> None:
    with pytest.raises(InvalidSpec, match="run_policy.clean_pods: may delete the pod of rank 0"):
        parse(
            "with DAG('d'):\n"
            "    @task.pytorch(image='i', elastic=Elastic(nodes=2),\n"
            "                  run_policy=RunPolicy(clean_pods='All'))\n"
            "    def f(): ...\n    f()\n"
        )


def test_templates_and_values_of_other_tasks_are_known_later(parse: Parse) -> None:
    module = parse(
        "with DAG('d') as dag:\n"
        "    @task\n    def rates(): return [1]\n"
        "    @task.pytorch(**PYTORCH)\n    def train(x, y, ds=None): ...\n"
        "    train(rates(), y='{{ ds }}')\n"
    )
    assert module.dag.get_task("train").upstream_task_ids == {"rates"}


def test_a_function_that_is_mapped_and_one_that_is_overridden(parse: Parse) -> None:
    module = parse(
        "with DAG('d') as dag:\n"
        "    @task.pytorch(**PYTORCH)\n    def train(rate, epochs=1) -> dict: ...\n"
        "    train.partial(epochs=2).expand(rate=[1, 2])\n"
        "    train.override(task_id='other', workers=5)(1)\n"
    )
    mapped = module.dag.get_task("train")
    made = mapped.unmap({"op_kwargs": {"rate": 2}})
    assert isinstance(made, FunctionOperator)
    assert made.multiple_outputs
    assert module.dag.get_task("other").workers == 5
    assert json.loads(carried(made)["function"]["arguments"])["kwargs"] == {"epochs": 2, "rate": 2}


def test_the_plain_function_is_there_for_unit_tests(parse: Parse) -> None:
    module = parse("@task.pytorch(**PYTORCH)\ndef train(x):\n    return x + 1\n")
    assert module.train.function(1) == 2


def test_what_the_function_wants_of_the_context_is_filled_in(parse: Parse) -> None:
    module = parse(
        "with DAG('d') as dag:\n"
        "    @task.pytorch(**PYTORCH)\n    def train(x, ds=None, params=None, run_id='kept'): ...\n"
        "    train(1)\n".replace("run_id='kept'", "run_id=None")
    )
    operator = module.dag.get_task("train")
    context = {"ds": "2026-11-22", "params": {"a": 1}, "run_id": "r", "ti": object()}
    assert operator._with_context(context) == {
        "ds": "2026-11-22",
        "params": {"a": 1},
        "run_id": "r",
    }


def test_the_function_stands_in_the_rendered_fields_as_it_is(parse: Parse) -> None:
    module = parse(
        "with DAG('d') as dag:\n"
        "    @task.pytorch(**PYTORCH)\n    def train(x):\n        return '{{ ds }}'\n"
        "    train('{{ ds }}')\n"
    )
    operator = module.dag.get_task("train")
    operator.render_template_fields({"ds": "2026-11-22"})
    assert operator.op_args == ("2026-11-22",)
    assert "return '{{ ds }}'" in operator.function
    assert "function" in operator.template_fields


def test_a_value_that_cannot_be_stored_fails_for_good_and_keeps_the_job() -> None:
    with pytest.raises(exceptions().AirflowFailException) as caught:
        _returned(Returned(problem="it is too large: 9 bytes."))
    assert isinstance(caught.value.__cause__, NoValue)
    assert "it is too large: 9 bytes. The job is kept." in str(caught.value)


def test_what_is_carried_is_elided_in_logs_and_whole_in_a_dry_run(
    parse: Parse, capsys: pytest.CaptureFixture[str]
) -> None:
    from airflow_kftrain.operators.showing import manifest_text

    module = parse(
        "with DAG('d') as dag:\n    @task.pytorch(**PYTORCH)\n    def train(): ...\n    train()\n"
    )
    operator = module.dag.get_task("train")
    operator.dry_run()
    whole = capsys.readouterr().out
    operator.read_files(None)
    shown = manifest_text(build_manifest(operator.spec()))
    assert len(whole) > 14_000 > len(shown)
    assert "airflow-kftrain/code: (" in shown


def test_secrets_among_the_arguments_keep_what_pods_write_from_the_triggerer(parse: Parse) -> None:
    from airflow.sdk.log import mask_secret

    from airflow_kftrain.operators.showing import masked_texts

    module = parse(
        "with DAG('d') as dag:\n    @task.pytorch(**PYTORCH)\n    def train(x): ...\n"
        "    train(['plain', {'key': 'postgres://a-very-secret-word@db'}])\n"
    )
    operator = module.dag.get_task("train")
    texts = list(operator.hidden_texts())
    assert texts == ["plain", "postgres://a-very-secret-word@db"]
    assert masked_texts({"spec": {}}, operator.log, texts) == ()
    mask_secret("a-very-secret-word")
    (masked,) = masked_texts({"spec": {}}, operator.log, texts)
    assert masked.path == ""
