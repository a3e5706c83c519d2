"""What moves a loss: the buckets that a step is made of, or their own losses."""

import json

import numpy as np
import pytest

from dflash_lightning.training.watch.mix_split import MixSplit, RawSplit
from tests.training.watch.bucket_sums import step_of

LEVELS = (1.0, 2.0, 4.0)


def run(rng, *, steps=400, levels=LEVELS, noise=0.0, trend=0.0, per_step=4):
    """Steps of a few micro-batches of random buckets; the loss is the bucket's level, noise and a trend."""
    for t in range(steps):
        buckets = rng.integers(0, len(levels), per_step)
        means = np.array(levels)[buckets] + rng.normal(0, noise, per_step) - trend * t
        yield [(int(b), float(m), float(rng.uniform(1, 3))) for b, m in zip(buckets, means, strict=True)]


def share(steps):
    split = MixSplit(num_buckets=3)
    for micro_batches in steps:
        split.add(step_of(micro_batches, 3))
    return split.take()


def test_a_loss_that_depends_on_the_bucket_alone_is_all_mix():
    assert share(run(np.random.default_rng(0))) == pytest.approx(1.0)


def test_a_trend_is_in_neither_part():
    assert share(run(np.random.default_rng(0), trend=0.01)) > 0.99


def test_buckets_of_one_level_have_no_mix():
    assert share(run(np.random.default_rng(0), levels=(2.0, 2.0, 2.0), noise=0.5)) < 0.03


@pytest.mark.parametrize("noise", [0.3, 1.0, 2.0])
def test_the_share_is_that_of_the_variances(noise):
    """The loss without noise has the variance of the mix, the rest is that of the noise."""
    rng = np.random.default_rng(1)
    mix, rest = [], []
    steps = list(run(rng, noise=noise, steps=3000))
    for micro_batches in steps:
        weights = np.array([w for *_, w in micro_batches])
        level = np.array([LEVELS[b] for b, *_ in micro_batches])
        loss = np.array([m for _, m, _ in micro_batches])
        mix.append(weights @ level / weights.sum())
        rest.append(weights @ (loss - level) / weights.sum())
    expected = np.var(mix) / (np.var(mix) + np.var(rest))
    assert share(steps) == pytest.approx(expected, abs=0.05)


def test_the_first_step_and_a_new_bucket_have_no_change():
    split = MixSplit(num_buckets=2)
    split.add(step_of([(0, 1.0, 1.0)], 2))
    assert split.take() is None
    split.add(step_of([(1, 5.0, 1.0)], 2))
    assert split.take() is None
    split.add(step_of([(0, 1.0, 1.0)], 2))
    assert split.take() == pytest.approx(1.0)
    assert split.take() is None  # nothing since then


# --- single micro-batches


def test_a_stretch_is_an_analysis_of_variance():
    rng = np.random.default_rng(2)
    split = RawSplit(num_buckets=3, per_bucket=100)
    everything = [micro for step in run(rng, steps=40, noise=0.7) for micro in step]
    split.add(step_of(everything, 3))
    movement = split.take()
    losses, labels = np.array([m for _, m, _ in everything]), np.array([b for b, *_ in everything])
    groups = [losses[labels == b] for b in range(3)]
    between = sum(len(g) * (g.mean() - losses.mean()) ** 2 for g in groups)
    within = sum(((g - g.mean()) ** 2).sum() for g in groups)
    expected = (between - 2 * within / (len(losses) - 3)) / (between + within)
    assert movement.share == pytest.approx(expected)
    assert movement.deviation == pytest.approx(losses.std(ddof=1))


def raw(steps):
    split = RawSplit(num_buckets=3)
    for micro_batches in steps:
        split.add(step_of(micro_batches, 3))
    return split.take()


@pytest.mark.parametrize("per_step", [1, 4])  # one micro-batch a step: only a stretch can compare buckets
def test_the_trend_does_not_count(per_step):
    rng = np.random.default_rng(3)
    flat = raw(run(rng, noise=0.1, per_step=per_step))
    falling = raw(run(rng, noise=0.1, trend=0.01, per_step=per_step))
    assert flat.share > 0.98
    assert falling.share > 0.97


def test_chance_is_taken_out():
    rng = np.random.default_rng(4)
    shares = [raw(run(rng, levels=(2.0,) * 3, noise=0.5, steps=60)).share for _ in range(20)]
    assert np.mean(shares) < 0.03


def test_too_few_micro_batches_say_nothing():
    assert RawSplit(num_buckets=3).take() is None
    assert raw([[(0, 1.0, 1.0), (1, 2.0, 1.0)]]) is None


@pytest.mark.parametrize("kind", [MixSplit, RawSplit])
def test_a_split_goes_on_where_it_was_saved(kind):
    steps = [step_of(step, 3) for step in run(np.random.default_rng(5), noise=0.3, steps=60)]
    whole, half = kind(num_buckets=3), kind(num_buckets=3)
    for step in steps[:31]:
        whole.add(step)
        half.add(step)
    resumed = kind(**json.loads(json.dumps(half.state_dict())))
    for step in steps[31:]:
        whole.add(step)
        resumed.add(step)
    assert resumed.take() == whole.take() is not None
