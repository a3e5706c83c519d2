"""Chooses the token id whose embedding stands at the slots to be drafted.

in    what the user set, what a drafter's config says, the tokenizer, the rows of the target's embedding
out   one id below the number of rows
law   never a guess: pad and eos are real tokens in real data, so where no id is free the user must name one
"""

from typing import Any


def resolve_mask_token(
    explicit: int | str | None, tokenizer: Any | None, *, vocab_rows: int, configured: int | None = None
) -> int:
    """The mask token by spec/dflash.md 1.7: explicit, drafter config, tokenizer, first unused row; else an
    error.

    Args:
        explicit: the user's choice, an id or a token's text.
        tokenizer: the target's Hugging Face tokenizer, None where the target has none.
        vocab_rows: rows of the target's embedding; the target is never resized.
        configured: the id in an existing drafter's config.

    Raises:
        ValueError: the id has no row, the text is no token, or nothing is free; the message lists candidates.
    """
    if isinstance(explicit, str):
        explicit = _id_of(explicit, tokenizer)
    for source, token_id in (("model.mask_token", explicit), ("the drafter's config", configured)):
        if token_id is not None:
            return _require_row(token_id, vocab_rows, source)
    if tokenizer is None:
        raise ValueError(
            "the target has no tokenizer to find a mask token in; set model.mask_token to a token id"
        )
    own = getattr(tokenizer, "mask_token_id", None)
    if own is not None:
        return _require_row(own, vocab_rows, "the tokenizer")
    if len(tokenizer) < vocab_rows:
        return len(tokenizer)
    raise ValueError(
        f"the tokenizer uses all {vocab_rows} rows of the target's embedding, so no id is free for the "
        f"mask token; set model.mask_token to a token that text never holds, {_suggestion(tokenizer)}"
    )


def reserved_tokens(tokenizer: Any) -> dict[str, int]:
    """Added tokens that are not bos, eos, pad or unk and that the chat template never writes: text -> id."""
    used = {getattr(tokenizer, f"{role}_token_id", None) for role in ("bos", "eos", "pad", "unk")}
    template = getattr(tokenizer, "chat_template", None) or ""
    text = template if isinstance(template, str) else "".join(template.values())
    added = sorted(tokenizer.added_tokens_decoder.items())
    return {str(token): index for index, token in added if index not in used and str(token) not in text}


def _suggestion(tokenizer: Any, *, limit: int = 8) -> str:
    candidates = reserved_tokens(tokenizer)
    if not candidates:
        return "and this tokenizer has no reserved special token to suggest"
    named = [f"{text} ({index})" for text, index in candidates.items()]
    return "for example " + ", ".join(named[:limit]) + (", ..." if len(named) > limit else "")


def _id_of(text: str, tokenizer: Any | None) -> int:
    if tokenizer is None:
        raise ValueError(f"model.mask_token {text!r} is a text, but the target has no tokenizer; give its id")
    vocabulary: dict[str, int] = tokenizer.get_vocab()
    if text not in vocabulary:
        raise ValueError(
            f"model.mask_token {text!r} is not one token of the target's tokenizer; choose one of its "
            "tokens, " + _suggestion(tokenizer)
        )
    return vocabulary[text]


def _require_row(token_id: int, vocab_rows: int, source: str) -> int:
    if not 0 <= token_id < vocab_rows:
        raise ValueError(
            f"mask token {token_id} from {source} has no row in the target's embedding, which has rows 0 to "
            f"{vocab_rows - 1}"
        )
    return token_id
