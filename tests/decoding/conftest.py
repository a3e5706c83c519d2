import pytest

from dflash_lightning.target.model import Target
from tests.decoding.drafters import greedy_text, memorising_drafter, prompts
from tests.toy import toy_model

LENGTH = 24


@pytest.fixture(scope="package")
def target():
    return Target(toy_model())


@pytest.fixture(scope="package")
def texts(target):
    """Prompt -> greedy text; several, so that the position alone does not tell what comes next."""
    return {tuple(prompt): greedy_text(target, prompt, length=LENGTH) for prompt in prompts(4)}


@pytest.fixture(scope="package")
def memorising(target, texts):
    """Right at about two of three slots of these texts, and only while the target's states are right."""
    return memorising_drafter(target, texts, steps=90)


@pytest.fixture(scope="package")
def mixed(target, texts):
    """As memorising; its sliding layers are causal within a block, and its full layer is not."""
    kinds = ("sliding_attention", "sliding_attention", "full_attention")
    shape = {"layer_types": kinds, "sliding_window": 6, "causal_in_block": "sliding"}
    return memorising_drafter(target, texts, steps=90, **shape)
