"""Whether a prompt and its answer fit into what the target was made for."""

from typing import Any


def require_room(config: Any, prompt_tokens: int, max_new_tokens: int, *, what: str = "the prompt") -> None:
    """Refuse a text that would outgrow the target's positions: behind them its answers are noise.

    Args:
        config: text config of the target.

    Raises:
        ValueError: prompt and answer together have more tokens than max_position_embeddings.
    """
    limit = getattr(config, "max_position_embeddings", None)
    if limit is not None and prompt_tokens + max_new_tokens > limit:
        way_out = (
            f"ask for at most {limit - prompt_tokens} new tokens (--max-new-tokens)"
            if prompt_tokens < limit
            else "shorten it"
        )
        raise ValueError(
            f"{what} has {prompt_tokens:,} tokens and its answer may have {max_new_tokens:,}, but the "
            f"target's context holds {limit:,}; {way_out}"
        )
