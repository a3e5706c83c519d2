"""The objectives a user can name in YAML: `objective: CrossEntropy`, or class_path DPace with init_args.

in    token losses [b, n, B-1] and which of them are supervised
out   detached fp32 weights of the same shape, 0 where not supervised
law   the loss of a step is sum(weight x token loss) / sum(weight), both over the whole window and all ranks
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

from jaxtyping import Bool, Float
from torch import Tensor

from dflash_lightning.objective.loss import Teacher
from dflash_lightning.objective.weights import default_gamma, dpace_weights, position_weights

Gamma = float | Literal["auto"] | None


class Objective(ABC):
    """What a supervised slot costs, and how much it counts."""

    needs_target_logits: ClassVar[bool] = False
    """True if the target must run to its end and hand over its final hidden states."""

    @abstractmethod
    def weights(
        self, token_loss: Float[Tensor, "b n slots"], supervised: Bool[Tensor, "b n slots"]
    ) -> Float[Tensor, "b n slots"]:
        """How much each slot counts."""

    def teacher(self, hidden: Float[Tensor, "p h"]) -> Teacher | None:
        """The target's part in the token loss; `hidden` is its final state one position before each slot."""
        return None


@dataclass(frozen=True, kw_only=True)
class CrossEntropy(Objective):
    """Cross-entropy on the real tokens, decaying along the block: the paper's loss."""

    gamma: Gamma = "auto"
    """Slot k counts exp(-(k - 1) / gamma). auto: the paper's for the block size; null or <= 0: no decay."""

    def weights(
        self, token_loss: Float[Tensor, "b n slots"], supervised: Bool[Tensor, "b n slots"]
    ) -> Float[Tensor, "b n slots"]:
        return _decay(self.gamma, supervised)


@dataclass(frozen=True, kw_only=True)
class DPace(Objective):
    """Cross-entropy weighted by how much of the expected accepted length still depends on the slot."""

    alpha: float = 0.5
    """Smoothing of the confidences, in [0, 1]: 1 ignores them, 0 lets an unlikely slot silence the rest."""

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise ValueError(f"DPace.alpha smooths between 0 and 1, got {self.alpha}")

    def weights(
        self, token_loss: Float[Tensor, "b n slots"], supervised: Bool[Tensor, "b n slots"]
    ) -> Float[Tensor, "b n slots"]:
        return dpace_weights(token_loss.float(), supervised, alpha=self.alpha)


@dataclass(frozen=True, kw_only=True)
class Distillation(Objective):
    """Cross-entropy on the real tokens, mixed with that against the target's own distribution."""

    needs_target_logits: ClassVar[bool] = True

    mix: float = 0.5
    """Share of the target's distribution, in [0, 1]."""
    temperature: float = 1.0
    """Softens both distributions; above 0."""
    gamma: Gamma = "auto"
    """Decay along the block, as in CrossEntropy."""

    def __post_init__(self) -> None:
        if not 0 <= self.mix <= 1:
            raise ValueError(f"Distillation.mix is a share between 0 and 1, got {self.mix}")
        if self.temperature <= 0:
            raise ValueError(f"Distillation.temperature must be above 0, got {self.temperature}")

    def weights(
        self, token_loss: Float[Tensor, "b n slots"], supervised: Bool[Tensor, "b n slots"]
    ) -> Float[Tensor, "b n slots"]:
        return _decay(self.gamma, supervised)

    def teacher(self, hidden: Float[Tensor, "p h"]) -> Teacher | None:
        return Teacher(hidden, mix=self.mix, temperature=self.temperature)


def _decay(gamma: Gamma, supervised: Bool[Tensor, "b n slots"]) -> Float[Tensor, "b n slots"]:
    block_size = supervised.shape[-1] + 1
    constant = default_gamma(block_size) if gamma == "auto" else gamma
    return supervised * position_weights(block_size, constant).to(supervised.device)
