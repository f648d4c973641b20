"""What a task shows of its job, where no cluster is needed."""

import pytest
import yaml

from airflow_kftrain.operators.showing import manifest_text


def test_a_program_is_shown_in_lines():
    program = 'import os\n\nif os.name:\n    print("é")\n'
    assert manifest_text({"command": ["python", "-c", program]}) == (
        'command:\n- python\n- -c\n- |\n  import os\n\n  if os.name:\n      print("é")\n'
    )


@pytest.mark.parametrize("text", ["a \nb", "\ta\n", "  a\nb", "\n", "a\n\n\n", "a\r\nb", "a\x07\n"])
def test_whatever_it_is_it_can_be_read_again(text):
    assert yaml.safe_load(manifest_text({"args": [text]})) == {"args": [text]}
