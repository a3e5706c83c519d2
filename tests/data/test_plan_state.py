import re

import pytest

from dflash_lightning.data.plan_state import require_ranks_agree, require_same_plan


def a_plan(digest="a" * 24, **settings):
    return {"digest": digest, "settings": {"seed": 0, "plan.max_rows": 64} | settings}


OTHER = "b" * 24


def test_equal_plans_are_accepted():
    require_same_plan(a_plan(), a_plan())
    require_ranks_agree([a_plan()] * 8)


def test_a_checkpoint_of_another_plan_is_refused_with_all_that_differs():
    digests = f"plan {'a' * 24}, but these settings give plan {OTHER}"
    differences = r"\(plan.max_rows: 64 in the checkpoint, 8 here; seed: 0 in the checkpoint, 1 here\)"
    with pytest.raises(ValueError, match=f"{digests} {differences}"):
        require_same_plan(a_plan(), a_plan(OTHER, seed=1, **{"plan.max_rows": 8}))


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (a_plan(OTHER, seed=1), "seed: 0 on rank 0, 1 on rank 2"),
        (a_plan(OTHER, extra=3), "extra: None on rank 0, 3 on rank 2"),
        (a_plan(OTHER), "equal settings: another version of the planner"),
    ],
)
def test_a_rank_with_another_plan_is_named_with_both_digests_and_what_differs(other, why):
    digests = f"ranks disagree about the plan: {'a' * 24} on rank 0, {OTHER} on rank 2"
    with pytest.raises(ValueError, match=re.escape(f"{digests} ({why}); give all nodes the same")):
        require_ranks_agree([a_plan(), a_plan(), other, a_plan()])
