"""A target that chats, and a drafter for it, as folders."""

import dataclasses
import shutil

import pytest
import torch
from transformers import AutoTokenizer

from dflash_lightning.export.zlab import export_zlab
from dflash_lightning.target.loading import load_target
from tests.decoding.drafters import random_drafter

TEMPLATE = (
    "{% for m in messages %}t2 {{ m.content }} t3 {% endfor %}{% if add_generation_prompt %}t4{% endif %}"
)


@pytest.fixture(scope="package")
def target_folder(toy_target, tmp_path_factory):
    folder = tmp_path_factory.mktemp("chat") / "target"
    shutil.copytree(toy_target, folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="package")
def target(target_folder):
    return load_target(target_folder, dtype=torch.float32)


@pytest.fixture(scope="package")
def drafter_folder(target, tmp_path_factory):
    drafter = random_drafter(target)
    return export_zlab(drafter.config, drafter.state_dict(), tmp_path_factory.mktemp("drafter") / "d")


@pytest.fixture(scope="package")
def altered(target):
    """Writes a drafter whose config differs from the weights' own."""

    def write(path, **changes):
        drafter = random_drafter(target)
        return export_zlab(dataclasses.replace(drafter.config, **changes), drafter.state_dict(), path)

    return write
