"""Oracle 6.27, and field.md section 3, case 4: explicit, configured or provably free, never a guess."""

import pytest
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from dflash_lightning.target.mask_token import reserved_tokens, resolve_mask_token

WORDS = {"a": 0, "b": 1}
TEMPLATE = "{% for m in messages %}<|start|>{{ m.content }}<|end|>{% endfor %}"


def tokenizer_with(**special):
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(WORDS, unk_token=None)), **special
    )
    reserved = [AddedToken(text, special=True) for text in ("<|start|>", "<|end|>", "<file_sep>", "<repo>")]
    tokenizer.add_tokens(reserved)
    tokenizer.chat_template = TEMPLATE
    return tokenizer


@pytest.fixture
def full():
    """Ids 0 to 6: two words, eos (also pad), four added tokens of which the template writes two."""
    return tokenizer_with(eos_token="</s>", pad_token="</s>")


@pytest.mark.parametrize(
    ("explicit", "configured", "rows", "chosen"),
    [
        (5, 6, 9, 5),  # what the user says comes first
        ("<repo>", 5, 7, 6),  # by text
        (None, 5, 9, 5),  # then the drafter's config
        (None, None, 9, 7),  # then the first row that the tokenizer does not use
        (0, 5, 7, 0),  # id 0 is an id, not "unset"
    ],
)
def test_resolution_order(full, explicit, configured, rows, chosen):
    assert resolve_mask_token(explicit, full, vocab_rows=rows, configured=configured) == chosen


def test_the_tokenizers_own_mask_token_beats_an_unused_row():
    own = tokenizer_with(mask_token="<mask>")
    assert resolve_mask_token(None, own, vocab_rows=99) == own.mask_token_id


def test_a_full_table_is_refused_with_candidates(full):
    with pytest.raises(ValueError, match=r"uses all 7 rows .* for example <file_sep> \(5\), <repo> \(6\)$"):
        resolve_mask_token(None, full, vocab_rows=7)


def test_candidates_are_neither_ends_nor_written_by_the_template(full):
    assert reserved_tokens(full) == {"<file_sep>": 5, "<repo>": 6}


@pytest.mark.parametrize(
    ("explicit", "configured", "message"),
    [
        (
            9,
            None,
            "mask token 9 from model.mask_token has no row in the target's embedding, which has rows 0 to 8",
        ),
        (-1, None, "mask token -1 from model.mask_token has no row"),
        (None, 12, "mask token 12 from the drafter's config has no row"),
        ("<nope>", None, r"'<nope>' is not one token .* <file_sep> \(5\)"),
    ],
)
def test_ids_without_a_row_and_texts_that_are_no_token_are_refused(full, explicit, configured, message):
    with pytest.raises(ValueError, match=message):
        resolve_mask_token(explicit, full, vocab_rows=9, configured=configured)


@pytest.mark.parametrize(
    ("explicit", "message"), [(None, "set model.mask_token to a token id"), ("a", "give its id")]
)
def test_without_a_tokenizer_only_an_id_will_do(explicit, message):
    assert resolve_mask_token(3, None, vocab_rows=9) == 3
    with pytest.raises(ValueError, match=message):
        resolve_mask_token(explicit, None, vocab_rows=9)


def test_a_tokenizer_without_reserved_tokens_says_so():
    bare = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel(WORDS, unk_token=None)))
    with pytest.raises(ValueError, match="no reserved special token to suggest"):
        resolve_mask_token(None, bare, vocab_rows=2)
