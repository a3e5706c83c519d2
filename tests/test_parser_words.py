"""What is wrong with a value, without what the parser tried."""

import pytest
from jsonargparse import ArgumentParser
from lightning import Callback

from dflash_lightning.callbacks.prefetch_balance import PrefetchBalance
from dflash_lightning.parser_words import reasons
from dflash_lightning.target.dispatch import PrefetchPolicy


def told(kind, value):
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--it", type=kind)
    with pytest.raises(ValueError, match="Union") as problem:
        parser.instantiate_classes(parser.parse_object({"it": value}))
    return reasons(str(problem.value))


def test_of_an_optional_setting_only_its_own_words_stay():
    assert told(PrefetchPolicy | None, {"depth": -1}) == (
        "prefetch depth must be at least 0 batches (0: no pipeline), got -1"
    )


def test_of_a_callback_in_a_list_only_its_own_words_stay():
    name = f"{PrefetchBalance.__module__}.PrefetchBalance"
    entry = {"class_path": name, "init_args": {"memory_gib": 0.0}}
    assert told(list[Callback] | Callback | None, [entry]) == (
        "PrefetchBalance.memory_gib must be above 0 GiB, got 0.0; null leaves depth as the only bound"
    )


@pytest.mark.parametrize(
    "message", ["there is no checkpoint", "Does not validate against any of the Union subtypes"]
)
def test_what_names_no_reasons_stays_as_it_is(message):
    assert reasons(message) == message
