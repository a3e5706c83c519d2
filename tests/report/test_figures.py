"""Long series are thinned without hiding anything, and every figure that the logs allow is drawn."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_lightning.report.figures.catalogue import CATALOGUE, figures_of, missing_from
from dflash_lightning.report.figures.overlay import overlays
from dflash_lightning.report.figures.palette import DARK, LIGHT, bucket_colours
from dflash_lightning.report.figures.sheet import PHONE, Mark, draw_png, draw_svg, tick_label
from dflash_lightning.report.figures.thin import envelope, means, own_band, sample, spread
from dflash_lightning.report.read import read_run
from tests.report.drawn_runs import write_full_run, write_small_run

VALUES = st.lists(st.floats(-1e6, 1e6) | st.just(float("nan")), max_size=300)


@given(values=VALUES, bins=st.integers(1, 20))
def test_an_envelope_keeps_every_extreme_and_invents_nothing(values, bins):
    steps, series = np.arange(len(values)) * 10.0, np.array(values, dtype=np.float64)
    x, y = envelope(steps, series, bins)
    there = series[np.isfinite(series)]
    assert len(x) <= 2 * bins + 2
    assert (np.diff(x) > 0).all()  # in order, no point twice
    assert [series[int(step) // 10] for step in x] == y.tolist()  # real points
    if len(there):
        assert (y.min(), y.max(), y[0], y[-1]) == (there.min(), there.max(), there[0], there[-1])


@given(values=VALUES, bins=st.integers(1, 20))
def test_each_stretch_keeps_its_own_extremes(values, bins):
    series = np.array([value for value in values if np.isfinite(value)], dtype=np.float64)
    steps = np.arange(len(series), dtype=np.float64)
    x, y = envelope(steps, series, bins)
    for stretch in np.array_split(steps, bins):
        if len(stretch):
            inside = y[np.isin(x, stretch)]
            whole = series[stretch.astype(int)]
            assert inside.min() == whole.min()
            assert inside.max() == whole.max()


@given(values=VALUES, limit=st.integers(4, 60))
def test_a_sample_keeps_the_highest_and_the_lowest_dot(values, limit):
    steps, series = np.arange(len(values), dtype=np.float64), np.array(values, dtype=np.float64)
    x, y = sample(steps, series, limit)
    there = series[np.isfinite(series)]
    assert len(y) <= limit + 4
    assert (np.diff(x) >= 0).all()
    if len(there):
        assert (y.min(), y.max()) == (there.min(), there.max())


def test_a_stretch_is_summarised_by_its_quantiles():
    found = spread(np.arange(22.0), np.array([*range(11), *range(100, 111)], dtype=np.float64), 2)
    assert found.low.tolist() == [1, 101]
    assert found.middle.tolist() == [5, 105]
    assert found.high.tolist() == [9, 109]
    assert len(spread(np.empty(0), np.empty(0), 3).steps) == 0


def test_means_of_shares_still_add_up():
    rng = np.random.default_rng(0)
    share = rng.uniform(0, 100, 97)
    steps = np.arange(97.0)
    np.testing.assert_allclose(means(steps, share, 7)[1] + means(steps, 100 - share, 7)[1], 100)


def test_a_spike_leaves_the_band_and_does_not_widen_it():
    rng = np.random.default_rng(0)
    steps, calm = np.arange(400.0), 2 + 0.05 * rng.normal(size=400)
    spiked = calm.copy()
    spiked[200:203] += 5
    band, disturbed = own_band(steps, calm, 40), own_band(steps, spiked, 40)
    assert np.abs(disturbed.high - band.high).max() < 0.02 * 5  # of the spike
    outside = calm > np.interp(steps, band.steps, band.high)
    assert outside.mean() < 0.02


def test_a_full_run_has_every_figure_of_the_catalogue(full_run):
    assert missing_from(full_run) == {}
    names = [figure.name for figure in figures_of(full_run)]
    assert len(set(names)) == len(names) == len(CATALOGUE)


def test_a_run_of_losses_alone_has_its_loss_and_says_what_would_add_the_rest(tmp_path):
    run = read_run(write_small_run(tmp_path))
    assert [figure.name for figure in figures_of(run)] == ["loss"]
    missing = missing_from(run)
    assert missing["loss per bucket"] == "LossBands"
    assert missing["gradient norm"] == "GradNorm"
    assert missing["acceptance"] == ""  # fit logs it without a callback


def test_an_alarm_is_a_dashed_line_and_what_recurs_a_tick(full_run):
    def dashes_and_ticks(*marks):
        svg = draw_svg(figures_of(full_run, marks=marks)[0], PHONE)
        return np.array([svg.count("stroke-dasharray: 3"), svg.count("stroke: var(--warn)")])

    alarm, tick, outside = ((200, True), (300, False), (10**9, True))
    marks = [Mark(step=step, alarming=alarming) for step, alarming in (alarm, tick, outside)]
    assert (dashes_and_ticks(*marks) - dashes_and_ticks()).tolist() == [1, 1]


def test_a_group_of_parameters_has_its_own_line(full_run):
    figure = next(figure for figure in figures_of(full_run) if figure.name == "gradient_norm_per_group")
    assert ">layer_0<" in re.sub(r">\s+", ">", draw_svg(figure, PHONE))


def test_a_png_is_a_png(full_run):
    assert draw_png(figures_of(full_run)[0], PHONE).startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["$x_1$", "_hidden", "<b>"])
def test_a_runs_name_is_shown_literally(full_run, tmp_path, name):
    (figure, *_) = overlays({"plain": full_run, name: read_run(write_small_run(tmp_path))})
    assert f">{name.replace('<', '&lt;').replace('>', '&gt;')}<" in re.sub(
        r">\s+", ">", draw_svg(figure, PHONE)
    )


@pytest.mark.parametrize(
    ("value", "label"),
    [
        (12_000.0, "12,000"),
        (0.1 + 0.2, "0.3"),
        (-0.25, "\N{MINUS SIGN}0.25"),
        (0.00125, "0.00125"),  # beside 0.0013 it would be another step of the axis
        (2e-05, "2e-05"),
        (4_000_000.0, "4,000,000"),
        (0.0, "0"),
    ],
)
def test_ticks_keep_every_digit_that_counts(value, label):
    assert tick_label(value) == label


def test_no_two_roles_share_a_colour():
    for table, dark in ((LIGHT, False), (DARK, True)):
        for count in range(1, 12):
            colours = [*table.values(), *bucket_colours(count, dark=dark)]
            assert len(set(colours)) == len(colours)


@pytest.fixture(scope="module")
def full_run(tmp_path_factory):
    return read_run(write_full_run(tmp_path_factory.mktemp("full"), num_rows=120))
