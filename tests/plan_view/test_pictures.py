"""The pictures: that they are drawn, and that their titles tell the truth."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.colors import to_rgb
from matplotlib.image import imread

from dflash_lightning.plan import Credit, DiversityFirst, Samples
from dflash_lightning.plan_view.compare import compare, compared_settings
from dflash_lightning.plan_view.compare_picture import draw_comparison, windows_finding
from dflash_lightning.plan_view.facts import gather_facts
from dflash_lightning.plan_view.pictures import (
    MOST_LABELS,
    bucket_colours,
    draw_padding,
    draw_plan,
    mix_finding,
    stretch_shares,
    window_distances,
    window_finding,
)


def lightness(colour):
    return float(np.dot(to_rgb(colour[:3]), (0.299, 0.587, 0.114)))


@pytest.fixture(scope="module")
def facts(samples, settings):
    return {
        order: gather_facts(samples, replace(settings, plan=replace(settings.plan, order=order)), None)
        for order in (Credit(), DiversityFirst())
    }


def require_picture(path, *, width):
    picture = imread(path)
    assert picture.shape[1] == width
    assert len(np.unique(picture[::5, ::5, :3] @ (1, 256, 65_536))) > 100  # a number per colour


def test_a_page_is_drawn(facts, tmp_path):
    draw_plan(facts[DiversityFirst()], tmp_path / "plan.png", source="a store")
    require_picture(tmp_path / "plan.png", width=1800)


@pytest.mark.slow
def test_strategies_are_drawn(samples, settings, tmp_path):
    names = "credit,diversity_first,shuffle,random_order,super_buckets:2,mixed_buckets"
    draw_comparison(compare(samples, compared_settings(settings, names)), tmp_path / "c.png", source="x")
    require_picture(tmp_path / "c.png", width=1800)


@pytest.mark.slow
def test_the_smallest_plan_is_drawn(settings, tmp_path):
    """One batch, one bucket with samples."""
    few = Samples(np.array([5, 6, 7]), np.array([1, 1, 1]))
    tiny = replace(settings, world=1, accumulate=1)
    draw_plan(gather_facts(few, tiny, None), tmp_path / "plan.png", source="x")
    draw_comparison(compare(few, compared_settings(tiny, "credit")), tmp_path / "c.png", source="x")
    require_picture(tmp_path / "plan.png", width=1800)


def test_titles_say_what_is_to_be_seen(facts):
    even, uneven = facts[Credit()], facts[DiversityFirst()]
    assert mix_finding(even).startswith("Bucket mix: no tenth of the epoch is off by more than")
    run = uneven.judgement.summary.final_run / uneven.judgement.summary.batches
    assert mix_finding(uneven) == f"Bucket mix: the last {run:.1%} of the epoch is bucket 2 alone"
    closer = even.shuffled.tv_mean / even.judgement.mix.tv_mean
    assert (
        window_finding(even)
        == f"Windows of 8 batches: {closer:.1f} times closer to the epoch's mix than shuffled"
    )
    assert "times further from the epoch's mix than shuffled" in window_finding(uneven)


def test_no_strategy_is_praised_that_gains_nothing(samples, settings):
    def finding(names, run=settings):
        return windows_finding(compare(samples, compared_settings(run, names)))

    nothing = "Window mix: none is nearer to the epoch's than shuffled"
    assert finding("shuffle,credit,diversity_first") == "Window mix: credit gains most over shuffling"
    assert finding("shuffle,diversity_first") == nothing
    assert finding("mixed_buckets,window_first:8") == nothing  # their buckets are those of the longest rows
    assert finding("super_buckets:1") == nothing
    assert finding("credit,shuffle", replace(settings, world=1, accumulate=1)) == nothing


@pytest.mark.parametrize("buckets", [1, 10, 11, 40])
def test_any_number_of_buckets_is_labelled_without_overlap(samples, settings, buckets):
    plan = replace(settings.plan, edges=tuple(range(400, 400 + buckets)))
    figure, axis = plt.subplots()
    draw_padding(axis, gather_facts(samples, replace(settings, plan=plan), None))
    assert 1 <= len(axis.get_xticks()) <= MOST_LABELS
    assert sum(bool(text.get_text()) for text in axis.texts) <= MOST_LABELS
    plt.close(figure)


def test_the_dots_are_the_windows_that_were_judged(facts):
    for each in facts.values():
        assert window_distances(each).mean() == pytest.approx(each.judgement.mix.tv_mean)
        assert window_distances(each).max() == pytest.approx(each.judgement.mix.tv_max)


@pytest.mark.parametrize(("batches", "stretches"), [(5, 1), (25, 2), (999, 99), (5000, 100)])
def test_every_stretch_is_a_mix_of_whole_batches(batches, stretches):
    shares = stretch_shares(np.arange(batches) % 3, 3)
    assert shares.shape == (stretches, 3)
    assert np.allclose(shares.sum(axis=1), 1)


@pytest.mark.parametrize("buckets", [2, 6, 12])
def test_buckets_differ_in_greyscale(buckets):
    grey = [lightness(colour) for colour in bucket_colours(buckets)]
    assert min(np.diff(grey)) > 0.03
