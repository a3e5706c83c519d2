import numpy as np
import pytest

from dflash_lightning.plan import PlanConfig, Samples
from dflash_lightning.plan_view.settings import PlanSettings


@pytest.fixture(scope="package")
def samples():
    """Many short samples and long ones that make half of the batches."""
    rng = np.random.default_rng(0)
    lengths = np.concatenate((rng.integers(20, 101, 2000), rng.integers(101, 401, 1500)))
    return Samples(lengths, lengths * 2 // 3)


@pytest.fixture(scope="package")
def settings():
    plan = PlanConfig(edges=(60, 100, 400), max_tokens=800, max_rows=8, max_block_tokens=0)
    return PlanSettings(plan=plan, num_anchors=16, block_size=4, world=2, accumulate=4)
