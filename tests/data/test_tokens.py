import json

import numpy as np
import pytest

from dflash_lightning.data.conversations import RowError
from dflash_lightning.data.sources import Chunk
from dflash_lightning.data.tokens import Encoder, TokenRow
from tests.data.chats import END, chat_format, row

FORM = chat_format()
ENCODER = Encoder(form=FORM, vocab_size=261)


def ready(*mask: int, ids=None) -> dict[str, object]:
    return {"input_ids": list(range(len(mask))) if ids is None else ids, "loss_mask": list(mask)}


def encoder(**settings) -> Encoder:
    return Encoder(form=FORM, vocab_size=261, **settings)


def test_a_chat_becomes_ids_and_mask_of_equal_length():
    encoded = ENCODER.encode(row("Hello", "Hi"))
    assert encoded.input_ids.dtype == np.int32
    assert encoded.loss_mask.dtype == np.uint8
    text = FORM.tokenizer.decode(encoded.input_ids.tolist())
    assert text == f"<|im_start|>user\nHello{END}\n<|im_start|>assistant\nHi{END}\n"
    assert encoded.supervised == len("Hi") + 1


def test_json_lines_and_mappings_are_the_same():
    given = row("Hello", "Hi")
    from_bytes = ENCODER.encode(json.dumps(given).encode())
    assert from_bytes.input_ids.tolist() == ENCODER.encode(given).input_ids.tolist()


@pytest.mark.parametrize(
    ("mask", "limit", "kept"),
    [
        ((0, 1, 1), 3, (0, 1, 1)),  # as long as allowed
        ((0, 1, 1, 0), 3, (0, 1, 1)),
        ((0, 1, 1, 1), 3, (0, 1, 1)),
    ],
)
def test_truncation_keeps_the_start_and_says_so(mask, limit, kept):
    cut = encoder(max_length=limit, truncate=True).encode(ready(*mask))
    assert tuple(cut.loss_mask) == kept
    assert cut.truncated == (len(mask) > limit)


@pytest.mark.parametrize(
    ("given", "settings", "message"),
    [
        (b'{"messages": ', {}, "broken JSON .Expecting value"),
        (b'{"messages": "\xff"}', {}, "broken JSON .*utf-8"),
        (b"[" * 100_000, {}, "broken JSON .*recursion"),
        (ready(0, 1, 1, 1), {"max_length": 3}, "longer than --max-length .4 > 3 tokens; --truncate"),
        (ready(0, 0, 1, 1), {"max_length": 3, "truncate": True}, "no anchor .in its first 3 tokens"),
        (ready(0, 1, 0, 1), {}, "no two supervised tokens in a row, so no anchor .in 4 tokens"),
        (ready(), {}, "no anchor .in 0 tokens"),
        (ready(1, 1, ids=[0, 261]), {}, "outside the target's vocabulary .id 261, vocabulary 261"),
        (ready(1, 1, ids=[0, -1]), {}, "outside the target's vocabulary .id -1"),
        (ready(1, 1, ids=[0, 2**40]), {}, "outside the target's vocabulary"),  # and not 0 after a narrowing
    ],
)
def test_rows_that_cannot_train_say_why(given, settings, message):
    with pytest.raises(RowError, match=message):
        encoder(**settings).encode(given)


def test_a_chat_among_ready_tokens_is_refused_where_no_template_was_looked_for():
    with pytest.raises(RowError, match="every input starts with ready tokens"):
        Encoder(form=None, vocab_size=261).encode(row("Hello", "Hi"))


def test_a_bad_row_does_not_end_its_chunk():
    chunk = Chunk(3, (7, 9, 10), (row("a", "b"), b"{", row("c", "d")), 42)
    done = ENCODER.encode_chunk(chunk)
    assert (done.source, done.numbers, done.num_bytes) == (3, (7, 9, 10), 42)
    assert [type(outcome) for outcome in done.outcomes] == [TokenRow, RowError, TokenRow]
