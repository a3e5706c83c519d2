"""Which words of a command line are plan's own, and which are settings of `fit`."""

import pytest

from dflash_lightning.plan_view.words import split_words


@pytest.mark.parametrize(
    ("line", "own", "fit"),
    [
        ("--lengths a.npy --seed 3", "--lengths a.npy --seed 3", ""),
        ("--config a.yaml --config b.yaml", "", "--config a.yaml --config b.yaml"),
        ("--config=a.yaml --seed=3", "--seed=3", "--config=a.yaml"),
        ("--model.lr 3e-4 --seed 3", "--seed 3", "--model.lr 3e-4"),
        ("--seed 3 --data.plan.edges=[1,2] --plot p.png", "--seed 3 --plot p.png", "--data.plan.edges=[1,2]"),
        ("--trainer.max_steps -1 --epoch 2", "--epoch 2", "--trainer.max_steps -1"),  # a value, no option
        ("--plot x.y.png", "--plot x.y.png", ""),  # a dot in a value says nothing
        ("--plot=x.y.png", "--plot=x.y.png", ""),
        ("--trainer.callbacks+=GradNorm --help", "--help", "--trainer.callbacks+=GradNorm"),
        ("-c a.yaml -h", "-h", "-c a.yaml"),
        ("--static-shapes --model.lr 1", "--static-shapes", "--model.lr 1"),
        ("--seed_everything 3", "", "--seed_everything 3"),
    ],
)
def test_a_dot_in_the_name_is_a_setting_of_fit(line, own, fit):
    assert split_words(line.split()) == (own.split(), fit.split())
