"""Decodes held-out prompts at validations: the acceptance length itself, beside the teacher-forced one."""

from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import ModelParallelStrategy
from lightning.pytorch.utilities import rank_zero_info, rank_zero_warn

from dflash_lightning.data.tokenizer import stop_ids
from dflash_lightning.target.loading import load_stop_ids
from dflash_lightning.target.model import Target
from dflash_lightning.target.twins import twin
from dflash_lightning.training.module import DFlashModule
from dflash_lightning.training.watch.held_out_decoding import (
    Decoding,
    decode_held_out,
    decoded_values,
    held_out_prompts,
)


class HeldOutDecoding(Callback):
    """Drafts and verifies answers to prompts of the validation rows, greedily, with the weights of now. Logs:

        val/decode_tau           tokens per target pass over all rounds of all prompts
        val/decode_tau_mean      mean of each prompt's own
        val/decode_tau_first32   pooled, over the first 32 new tokens: before small models repeat themselves
        val/lookup_tau           prompt lookup on the same answers: what copying alone would give

    `test` decodes too, prompts of `data.test_store`, and logs the same under `test/`.
    The best checkpoint is still chosen by `val/tau`, which is counted on every anchor, not on a few prompts.

    Args:
        every_n_validations: The first of every n decodes, 1: each; `validate` always does.
        decoding: How many prompts, how long answers.
    """

    def __init__(self, every_n_validations: int = 1, decoding: Decoding = Decoding()) -> None:  # noqa: B008
        if every_n_validations < 1:
            raise ValueError(
                f"HeldOutDecoding.every_n_validations must be at least 1, got {every_n_validations}"
            )
        self.every_n_validations = every_n_validations
        self.decoding = decoding
        self._seen = 0
        self._target: Target | None = None
        self._prompts: list[list[int]] = []
        self._stop_ids: frozenset[int] = frozenset()

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        assert isinstance(pl_module, DFlashModule)
        if isinstance(trainer.strategy, ModelParallelStrategy):
            raise ValueError(
                "HeldOutDecoding needs the whole drafter, and ModelParallelStrategy gives each rank a part: "
                "take the callback out, and use `evaluate` on an exported drafter"
            )
        if pl_module.target_settings.sharded:
            raise ValueError(
                "HeldOutDecoding decodes on each rank for itself, and model.target_settings.sharded has all "
                "ranks run the target together: take the callback out, and use `evaluate` on an exported "
                "drafter"
            )
        if pl_module.hidden_states is not None:
            raise ValueError(
                "HeldOutDecoding needs the whole target, and with model.hidden_states only its embedding and "
                "head are loaded: take the callback out, and use `evaluate` on an exported drafter"
            )

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.sanity_checking:
            return
        if trainer.state.fn != "fit" or self._seen % self.every_n_validations == 0:
            self._decode(trainer, pl_module, "val")
        self._seen += 1

    def on_test_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._decode(trainer, pl_module, "test")

    def _decode(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        assert isinstance(pl_module, DFlashModule)
        assert pl_module.target is not None
        assert pl_module.drafter is not None
        if self._target is None:  # modules of its own: the target may be running ahead in another thread
            self._target = twin(pl_module.target, pl_module.target.device)
            self._prepare(pl_module)
        if not self._prompts:
            return
        rounds = decode_held_out(
            trainer, self._target, pl_module.drafter, self._prompts, self._stop_ids, self.decoding
        )
        values = decoded_values(stage, *rounds)
        pl_module.log_dict(values)
        rank_zero_info(
            f"{len(self._prompts)} held-out prompts decoded: {values[f'{stage}/decode_tau']:.3f} tokens a "
            f"target pass, prompt lookup {values[f'{stage}/lookup_tau']:.3f}"
        )

    def _prepare(self, module: DFlashModule) -> None:
        """Prompts that leave room for an answer, and what ends one: also what `prepare` was told."""
        store, limit = module.data.held_out, module.target_config.max_position_embeddings
        room = limit - self.decoding.max_new_tokens
        self._prompts = held_out_prompts(store, self.decoding.prompts, longest=room)
        ends = (*load_stop_ids(module.target_name), *store.manifest.stop_ids)
        self._stop_ids = stop_ids(module.tokenizer, [], ends)
        if not self._prompts:
            rank_zero_warn(
                f"HeldOutDecoding: no validation row of {store.path} that was looked at has a prompt to "
                f"continue with room for decoding.max_new_tokens {self.decoding.max_new_tokens} in the "
                f"{limit} positions of the target: nothing is decoded. Hold out rows with prompts, or ask "
                "for shorter answers"
            )

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._target = None

    def state_dict(self) -> dict[str, int]:
        return {"seen": self._seen}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        self._seen = state_dict["seen"]
