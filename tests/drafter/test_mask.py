import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention.flex_attention import create_mask

from dflash_lightning.drafter.mask import build_masks, visible
from tests.drafter.toy import dense, drafter_config


def rows_of(anchors, *, context, block, keep=None, **changes):
    """Dense mask of one sequence's blocks, as the list of keys that each query sees."""
    layer = "sliding_attention" if "sliding_window" in changes else "full_attention"
    config = drafter_config(layer_types=(layer,) * 3, **changes)
    kept = torch.tensor([keep or [True] * len(anchors)])
    mask = dense(build_masks(torch.tensor([anchors]), kept, context, block, config), layer)[0]
    return [row.nonzero()[:, 0].tolist() for row in mask]


def test_a_slot_sees_what_precedes_its_anchor_and_its_own_block():
    first, second = [0, 6, 7, 8], [0, 1, 2, 3, 9, 10, 11]
    assert rows_of([1, 4], context=6, block=3) == [first] * 3 + [second] * 3


def test_an_anchor_at_position_0_sees_its_block_alone():
    rows = rows_of([0, 2], context=5, block=4)
    assert rows == [[5, 6, 7, 8]] * 4 + [[0, 1, 9, 10, 11, 12]] * 4
    assert sum(map(len, rows)) == 40


def test_a_block_that_is_not_kept_sees_itself_so_that_no_row_is_empty():
    rows = rows_of([1, 4, 7, 0], context=10, block=3, keep=[True, True, True, False])
    assert [len(row) for row in rows] == [4] * 3 + [7] * 3 + [10] * 3 + [3] * 3
    assert rows[9] == [19, 20, 21]
    assert rows_of([5], context=10, block=3, keep=[False])[0] == [10, 11, 12]  # whatever its anchor says


SLIDING = {"sliding_window": 4}


def test_the_window_is_measured_from_the_slot():
    context = [[3, 4, 5], [4, 5], [5], []]
    own = [12, 13, 14, 15]
    assert rows_of([6], context=12, block=4, **SLIDING) == [seen + own for seen in context]
    causal = rows_of([6], context=12, block=4, causal_in_block=True, **SLIDING)
    assert causal == [seen + own[: k + 1] for k, seen in enumerate(context)]


@pytest.mark.parametrize(
    ("causal", "counts"), [(True, [2, 3, 4, 4, 4, 4, 4, 4, 4]), (False, [4, 4, 4, 6, 5, 4, 6, 5, 4])]
)
def test_row_counts_of_sliding_layers(causal, counts):
    rows = rows_of([1, 4, 7], context=10, block=3, causal_in_block=causal, **SLIDING)
    assert [len(row) for row in rows] == counts


def test_a_window_wider_than_everything_is_full_attention():
    assert rows_of([1, 4], context=6, block=3, sliding_window=9) == rows_of([1, 4], context=6, block=3)


def test_layers_of_one_type_share_a_mask_and_absent_types_have_none():
    anchors = torch.tensor([[1, 4]])
    kept = torch.ones_like(anchors, dtype=torch.bool)
    both = ("full_attention", "sliding_attention", "full_attention")
    masks = build_masks(anchors, kept, 6, 3, drafter_config(layer_types=both, sliding_window=2))
    assert dense(masks).sum() > dense(masks, "sliding_attention").sum()
    assert build_masks(anchors, kept, 6, 3, drafter_config()).sliding is None


@settings(max_examples=30)
@given(data=st.data())
def test_dense_mask_is_the_predicate_and_the_spec_spelled_out(data):
    context, block, count = (data.draw(st.integers(1, high)) for high in (9, 4, 3))
    rows = 2
    grid = st.lists(st.integers(0, context - 1), min_size=count, max_size=count)
    anchors = torch.tensor([data.draw(grid) for _ in range(rows)])
    keep = torch.tensor([[data.draw(st.booleans()) for _ in range(count)] for _ in range(rows)])
    window, causal = data.draw(st.none() | st.integers(1, 12)), data.draw(st.booleans())

    rule = visible(
        anchors, keep, context_length=context, block_size=block, window=window, causal_in_block=causal
    )
    changes = {"causal_in_block": causal} | ({} if window is None else {"sliding_window": window})
    layer = "full_attention" if window is None else "sliding_attention"
    config = drafter_config(layer_types=(layer,) * 3, **changes)
    mask = build_masks(anchors, keep, context, block, config).of(layer)
    queries, keys = count * block, context + count * block

    assert torch.equal(create_mask(rule, rows, 1, queries, keys, device="cpu"), mask)  # what flex sees
    table, kept = mask[:, 0].tolist(), keep.tolist()
    for r in range(rows):
        for q in range(queries):
            (j, k), a = divmod(q, block), anchors.tolist()[r][q // block]
            for m in range(keys):
                if m < context:
                    expected = m < a and kept[r][j] and (window is None or a + k - m < window)
                else:
                    expected = (m - context) // block == j and (not causal or (m - context) % block <= k)
                assert table[r][q][m] == expected
