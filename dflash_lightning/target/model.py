"""The frozen target as the rest of the project sees it: states, embeddings, a head, and a cache to decode
with.

in    token ids
out   tapped hidden states, final states, logits
law   no parameter of the target is ever trained, saved or synchronised: Target is no nn.Module on purpose,
      so that an owner that is one does not register it
"""

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from dflash_lightning.target.hidden_states import TargetStates, tapped_forward
from dflash_lightning.target.layers import find_parts, text_config


class Target:
    """A Hugging Face causal LM, frozen and in eval mode. One forward pass at a time."""

    def __init__(self, model: Any) -> None:
        """Freezes `model` in place and checks that its head alone gives its logits.

        Raises:
            ValueError: the model is not built like Llama, holds weights that were never loaded (meta
                tensors), or does more between the final norm and the logits than one matrix product.
        """
        self.model = model.eval().requires_grad_(False)
        self.parts = find_parts(model)
        self.config = text_config(model.config)
        self._cache_argument = _cache_argument(self.parts.body)
        _require_materialised(model)
        self._require_plain_head()

    @property
    def depth(self) -> int:
        """Number of decoder layers."""
        return len(self.parts.layers)

    @property
    def hidden_size(self) -> int:
        return self.parts.embed.embedding_dim

    @property
    def vocab_size(self) -> int:
        """Rows of the embedding, which may be more than the tokenizer has tokens."""
        return self.parts.embed.num_embeddings

    @property
    def head(self) -> Float[Tensor, "v h"]:
        """Weight of the output projection, frozen; the embedding's own tensor where the target ties them."""
        return self.parts.head

    @property
    def device(self) -> torch.device:
        return self.parts.embed.weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.parts.embed.weight.dtype

    def to(self, device: torch.device | str) -> "Target":
        """Move the model to `device`, in place; the dtype stays."""
        self.model.to(device)
        self.parts = find_parts(self.model)
        return self

    @torch.no_grad()
    def embed(self, ids: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape h"]:
        """Rows of the input embedding, without gradient."""
        embedded: Tensor = self.parts.embed(ids)
        return embedded

    def tapped_states(
        self, input_ids: Int[Tensor, "b s"], taps: Sequence[int], *, final: bool = False
    ) -> TargetStates:
        """States of whole sequences, padded on the right at will: no cache, no gradient, early exit.

        Args:
            taps: 0-based layer ids; the features are their outputs in this order.
            final: also run the remaining layers and return the final norm's output (for logits of the
                target).
        """
        return self._forward(input_ids, taps, final=final, use_cache=False)

    def extend(
        self,
        input_ids: Int[Tensor, "b s"],
        taps: Sequence[int],
        *,
        cache: Any,
        positions: Int[Tensor, "b s"] | None = None,
        mask: Any = None,
    ) -> TargetStates:
        """States of tokens that follow those in `cache`, which grows by them; `final` is always there.

        Args:
            positions: where the tokens stand; the next places, if None.
            mask: which keys each token sees, in the form of target/attention_masks.py; the past and the
                tokens before it, if None.
        """
        options = {self._cache_argument: cache, "position_ids": positions, "attention_mask": mask}
        return self._forward(input_ids, taps, final=True, use_cache=True, **options)

    @torch.no_grad()
    def _forward(
        self, input_ids: Tensor, taps: Sequence[int], *, final: bool, **options: Any
    ) -> TargetStates:
        # Under a trainer's autocast the target would compute in another precision than when it serves.
        with torch.autocast(self.device.type, enabled=False):
            return tapped_forward(self.parts, input_ids, taps, final=final, **options)

    @torch.no_grad()
    def _require_plain_head(self) -> None:
        """Two tokens through the whole model: soft caps and scales have many spellings, but one effect."""
        probe = torch.arange(2, device=self.device)[None]
        wanted = self.model(input_ids=probe, use_cache=False).logits.float()
        states = self.tapped_states(probe, (), final=True)
        assert states.final is not None
        got = (states.final @ self.head.T).float()
        if not torch.isfinite(wanted).all():
            raise ValueError(
                f"{_name(self.model)} computes logits that are not finite; were its weights loaded?"
            )
        if not torch.allclose(got, wanted, rtol=2e-2, atol=2e-2 * float(wanted.abs().max())):
            raise ValueError(
                f"{_name(self.model)} does more to its logits than the head's matrix product (a scale or a "
                "soft cap), which drafters in z-lab's format do not model"
            )


def _require_materialised(model: Any) -> None:
    empty = [name for name, parameter in model.named_parameters() if parameter.is_meta]
    if empty:
        raise ValueError(
            f"{_name(model)} has {len(empty)} weights that were never loaded (on the meta device), "
            f"first {empty[0]}; load the target with load_target"
        )


def _cache_argument(body: Any) -> str:
    """transformers 5.24 renamed `past_key_values` to `cache` and warns about the old name."""
    return "cache" if "cache" in inspect.signature(body.forward).parameters else "past_key_values"


def _name(model: Any) -> str:
    return type(model).__name__
