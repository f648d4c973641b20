"""The example DAGs parse; tests/e2e/test_examples.py runs them."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
from airflow.sdk import DAG

# The oldest supported cncf.kubernetes imports from modules that Airflow 3.1 has moved.
pytestmark = pytest.mark.filterwarnings("ignore:The `airflow")

FOLDER = Path(__file__).resolve().parent.parent.parent / "example_dags"
EXAMPLES = sorted(path.stem for path in FOLDER.glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_has_a_dag_named_like_its_file(example: str) -> None:
    module = import_module(f"example_dags.{example}")
    dags = [value for value in vars(module).values() if isinstance(value, DAG)]
    assert [dag.dag_id for dag in dags] == [example]
    assert dags[0].get_task("train").operator_class.__module__.startswith("airflow_kftrain.")


def test_every_operator_has_an_example() -> None:
    import airflow_kftrain

    used = {
        import_module(f"example_dags.{example}").dag.get_task("train").operator_class.__name__
        for example in EXAMPLES
    }
    operators = {name for name in airflow_kftrain.__all__ if name.endswith("Operator")}
    kinds = {name.replace("JobOperator", "").replace("Job", "") for name in operators}
    of_functions = {f"{kind}FunctionOperator" for kind in kinds}
    assert operators <= used <= operators | of_functions


def test_no_program_of_an_example_is_taken_for_a_dag_file() -> None:
    """Airflow looks for these two words before it imports a file."""
    programs = list((FOLDER / "programs").glob("*.py"))
    assert programs
    for program in programs:
        text = program.read_text(encoding="utf-8").lower()
        assert "dag" not in text or "airflow" not in text
