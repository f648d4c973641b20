"""What a task shows of its job, as far as no cluster is needed."""

import json
import logging
from datetime import timedelta

import pytest
import yaml
from airflow.sdk._shared.secrets_masker import mask_secret, reset_secrets_masker
from kubernetes.client import models as k8s

from airflow_kftrain import Elastic, FromSecret, Pod, Resources
from airflow_kftrain.messages import MaskedText
from airflow_kftrain.operators.showing import manifest_text, masked_texts, rendered_fields

LOG = logging.getLogger(__name__)


def test_a_program_is_shown_in_lines():
    program = 'import os\n\nif os.name:\n    print("é")\n'
    assert manifest_text({"command": ["python", "-c", program]}) == (
        'command:\n- python\n- -c\n- |\n  import os\n\n  if os.name:\n      print("é")\n'
    )


@pytest.mark.parametrize("text", ["a \nb", "\ta\n", "  a\nb", "\n", "a\n\n\n", "a\r\nb", "a\x07\n"])
def test_whatever_it_is_it_can_be_read_again(text):
    assert yaml.safe_load(manifest_text({"args": [text]})) == {"args": [text]}


@pytest.fixture
def secret():
    mask_secret("hunter2-is-long")
    yield "hunter2-is-long"
    reset_secrets_masker()


def manifest_of(*texts):
    return {"spec": {"containers": [{"name": "a", "args": list(texts)}]}}


def test_the_texts_that_airflow_masks_are_noted_once_each(secret):
    manifest = manifest_of("plain", f"--token={secret}", secret, secret)
    assert masked_texts(manifest, LOG) == (
        MaskedText(".containers[a].args[1]", "--token=***"),
        MaskedText(".containers[a].args[2]", "***"),
    )
    assert masked_texts(manifest_of("plain"), LOG) == ()


def test_the_rendered_tab_shows_nouns_by_their_names():
    volume = k8s.V1Volume(name="data", empty_dir=k8s.V1EmptyDirVolumeSource(medium="Memory"))
    parameters = {
        "image": "i",
        "elastic": Elastic(nodes=2, max_restarts=1),
        "container_resources": Resources(cpu=1),
        "pod": Pod(volumes=[volume]),
        "poll_interval": timedelta(minutes=1),
        "queue_name": None,
    }
    shown = rendered_fields(parameters, {"kind": "PyTorchJob"})
    assert json.loads(json.dumps(shown)) == shown
    assert shown.pop("elastic").items() >= {"nodes": 2, "max_restarts": 1}.items()
    assert shown == {
        "image": "i",
        "container_resources": {"cpu": 1},
        "pod": {"volumes": [{"name": "data", "emptyDir": {"medium": "Memory"}}]},
        "poll_interval": "0:01:00",
        "queue_name": None,
        "manifest": "kind: PyTorchJob\n",
    }


def test_the_rendered_tab_shows_no_secret(secret):
    shown = rendered_fields(
        {
            "args": [f"--key={secret}"],
            "env": {"API_TOKEN": "abc", "SPEED": "1"},
            "pod": Pod(patch={"containers": [{"env": [{"name": "PASSWORD", "value": "abc"}]}]}),
            "code": [FromSecret("names", "key")],
        },
        manifest_of(secret),
    )
    assert "abc" not in str(shown)
    assert secret not in str(shown)
    assert (shown["args"], shown["env"]) == (["--key=***"], {"API_TOKEN": "***", "SPEED": "1"})
    assert shown["code"] == [{"name": "names", "key": "key", "optional": False}]


def test_the_rendered_tab_is_cut_off_where_airflow_cuts_it_off():
    shown = rendered_fields({"args": ["x" * 5000]}, manifest_of("y" * 5000))
    for text in (shown["args"], shown["manifest"]):
        assert text.endswith("\n# Cut off: [core] max_templated_field_length is 4096.")
        assert len(text.partition("\n# Cut off")[0]) == 4096


def test_more_than_can_be_noted_is_said_and_leads_nowhere(secret, caplog):
    manifest = manifest_of(f"{'x' * 20_000}{secret}")
    assert masked_texts(manifest, LOG) == (MaskedText("", "***"),)
    assert "no logs of pods are shown" in caplog.text
