"""What must not reach a log folder or a logger, and what must."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dflash_lightning.redact import HIDDEN, hidden_environment, is_secret, redact

CONFIGS = Path(__file__).parents[1] / "configs"


@pytest.mark.parametrize(
    "name",
    [
        "key", "api_key", "apiKey", "WANDB_API_KEY", "aws_access_key_id", "aws_secret_access_key", "secret",
        "client_secret", "token", "hf_token", "access-token", "aws_session_token", "password", "passwd",
        "credentials", "authorization", "webhook_url", "api_keys",
    ],
)  # fmt: skip
def test_a_secret_by_its_name(name):
    assert is_secret(name)
    assert redact({"init_args": [{name: "s3cr3t"}]}, {}) == {"init_args": [{name: HIDDEN}]}
    assert redact({name: 12345678}, {}) == {name: HIDDEN}  # YAML made a number of it


@pytest.mark.parametrize(
    "name",
    [
        "mask_token",
        "max_tokens",
        "max_block_tokens",
        "num_kv_heads",
        "monitor",
        "keyframe",
        "tokenizer",
        "id",
    ],
)
def test_no_secret(name):
    assert not is_secret(name)
    assert redact({name: "text"}, {}) == {name: "text"}


@pytest.mark.parametrize("value", [None, True, False, "", [], {}, "${oc.env:HF_TOKEN}"])
def test_where_nothing_is_said_nothing_is_hidden(value):
    assert redact({"token": value}, {}) == {"token": value}


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://me:pw@host.org/x", "https://***@host.org/x"),
        ("s3://bucket/prefix", "s3://bucket/prefix"),
        ("https://host/f?X-Amz-Signature=abc&part=1", "https://host/f?X-Amz-Signature=***&part=1"),
        ("https://host/f?part=1&token=abc", "https://host/f?part=1&token=***"),
        ("me@host.org", "me@host.org"),
    ],
)
def test_a_login_in_a_url(url, shown):
    assert redact([url], {}) == [shown]


@pytest.mark.parametrize(
    ("text", "environment", "shown"),
    [
        ("/scratch/me/runs", {"SCRATCH": "/scratch/me"}, "${oc.env:SCRATCH}/runs"),
        ("cpu", {"DEVICE": "cpu"}, "${oc.env:DEVICE}"),
        ("cpu_offload", {"DEVICE": "cpu"}, "cpu_offload"),  # too short to be told from other text
        ("my-long-secret", {"S": "my-long-", "LONGER": "my-long-secret"}, "${oc.env:LONGER}"),
    ],
)
def test_a_value_of_the_environment_becomes_its_name_again(text, environment, shown):
    assert redact({"folder": text}, environment) == {"folder": shown}


def test_variables_that_are_read_by_the_config_and_those_with_a_secrets_name_are_hidden():
    texts = ["fit", "--config=a.yaml", "model: {lr: '${oc.env:RATE,0.1}'}", "${oc.env: FOLDER }"]
    environment = {
        "RATE": "0.2", "FOLDER": "/f", "HOME": "/home/me", "HF_TOKEN": "hf_12345678", "A_KEY": "short",
    }  # fmt: skip
    assert hidden_environment(texts, environment) == {
        "RATE": "0.2", "FOLDER": "/f", "HF_TOKEN": "hf_12345678",
    }  # fmt: skip


@pytest.mark.parametrize("path", sorted(CONFIGS.rglob("*.yaml")), ids=lambda path: path.stem)
def test_our_own_configs_are_untouched(path):
    config = yaml.safe_load(path.read_text())
    assert redact(config, {}) == config


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
)


@given(PLAIN)
def test_redacting_twice_changes_nothing_more(config):
    once = redact(config, {})
    assert redact(once, {}) == once
