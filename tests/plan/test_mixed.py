import numpy as np

from dflash_lightning.plan import MixedBuckets, PlanConfig
from tests.plan.cases import make_plan, make_samples


def test_long_rows_make_short_ones_pay():
    """The documented example: ten samples of 700 beside ten of 1,700 fill 24,000 of 34,000 tokens."""
    samples = make_samples([700] * 10 + [1700] * 10)
    config = PlanConfig(edges=(1216, 1728), packing=MixedBuckets(), max_tokens=34_000)
    plan = make_plan(samples, config)
    assert plan.num_batches == 1
    assert samples.lengths.sum() == 24_000
    assert len(samples) * plan.padded_length[0] == 34_000
    assert plan.bucket.tolist() == [1]


def test_a_batch_is_an_honest_sample_of_all_lengths():
    """Of 16 rows as many are short as chance gives: a binomial count, mean 8 and variance 4."""
    samples = make_samples([8, 64] * 8_000)
    config = PlanConfig(edges=(8, 64), packing=MixedBuckets(), max_rows=16, max_block_tokens=0)
    plan = make_plan(samples, config)
    short = np.array([(samples.lengths[plan.batch(i)] == 8).sum() for i in range(plan.num_batches)])
    assert plan.num_batches == 1_000
    assert short.mean() == 8
    assert 3.3 < short.var() < 4.7  # four standard errors
