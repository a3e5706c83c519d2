"""What `prepare --hidden-states` writes: from the YAML of a run, from options, or from both.

in    parsed options, words of `fit`
out   StatesSettings, then the manifest and layout of the folder
law   with the YAML of a run, its hidden states are those that the run will ask for
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from jsonargparse import Namespace

from dflash_lightning.checkpoint.versions import versions
from dflash_lightning.data.split import SPLITS, Split
from dflash_lightning.data.store import TokenStore
from dflash_lightning.plan_view.yaml_settings import read_sections
from dflash_lightning.target.geometry import taps_for
from dflash_lightning.target.hidden_states import require_taps
from dflash_lightning.target.identity import target_digest
from dflash_lightning.target.loading import load_config, load_tokenizer
from dflash_lightning.target.model import Target
from dflash_lightning.target.stored.layout import Layout, plan_layout
from dflash_lightning.target.stored.manifest import StatesManifest, states_bytes
from dflash_lightning.training.build import TargetSettings, build_target, states_identity


@dataclass(frozen=True, kw_only=True)
class StatesSettings:
    """Nothing is opened yet."""

    output: str
    target: str
    target_settings: TargetSettings
    taps: Sequence[int] | None
    """None: as `shape` says."""
    shape: Mapping[str, Any]
    """num_layers, num_taps and target_layer_ids of the drafter."""
    final: bool
    store_path: str
    template: str | None
    """File with the chat template of the store, where it is not the target's own."""
    max_tokens: int
    shard_bytes: int
    device: str

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise ValueError(f"--max-tokens must be at least 1, got {self.max_tokens}")
        if self.shard_bytes < 1:
            raise ValueError(f"--shard-gib must be above 0, got {self.shard_bytes / 2**30}")

    @cached_property
    def store(self) -> TokenStore:
        return TokenStore.open(self.store_path)

    @cached_property
    def counts(self) -> dict[str, int]:
        """Samples by split, in the order of their numbers."""
        return {split: len(self.store.split(split)) for split in SPLITS}

    def ids_of(self, sample: int) -> npt.NDArray[np.int64]:
        return self.store.row(*self._row(sample))[0]

    def place_of(self, sample: int) -> str:
        return self.store.place(*self._row(sample))

    def _row(self, sample: int) -> tuple[Split, int]:
        train = self.counts["train"]
        return ("train", sample) if sample < train else ("validation", sample - train)


def read_states_settings(options: Namespace, fit: Sequence[str]) -> StatesSettings:
    """Raises ValueError where the YAML and the options leave something open."""
    model, data = _model_and_data(fit)
    given = options.as_dict()
    return StatesSettings(
        output=_required(given.get("output") or model.get("hidden_states"), "--output"),
        target=_required(given.get("target") or model.get("target"), "--target"),
        target_settings=TargetSettings(
            **{**model.get("target_settings", {}), **{k: v for k, v in given.items() if k == "dtype"}}
        ),
        taps=parse_taps(given["taps"]) if "taps" in given else None,
        shape=_required(model.get("drafter") or ({} if "taps" in given else None), "--taps"),
        final=given.get("final", False) or _needs_final(model.get("objective")),
        store_path=_required(given.get("store") or data.get("store"), "--store"),
        template=data.get("template"),
        max_tokens=given["max_tokens"],
        shard_bytes=int(given["shard_gib"] * 2**30),
        device=given.get("device") or ("cuda" if torch.cuda.is_available() else "cpu"),
    )


def parse_taps(text: str) -> tuple[int, ...]:
    """ "1,9,17" -> (1, 9, 17). Raises ValueError."""
    try:
        return tuple(int(tap) for tap in text.strip("[]()").split(","))
    except ValueError:
        raise ValueError(f"--taps is a list of layers such as 1,9,17, got {text!r}") from None


def planned(settings: StatesSettings) -> tuple[StatesManifest, Layout]:
    """What will be written, and where each sample will lie. Refuses what cannot be; loads no weights."""
    config = load_config(settings.target)
    store, tokenizer = settings.store, load_tokenizer(settings.target)
    template = Path(settings.template).read_text(encoding="utf-8") if settings.template else None
    store.require_matches(tokenizer, vocab_rows=config.vocab_size, template=template)
    lengths = np.concatenate([store.samples(split).lengths for split in SPLITS])
    if lengths.max() > config.max_position_embeddings:
        raise ValueError(
            f"the longest sample has {lengths.max()} tokens, but the target has "
            f"{config.max_position_embeddings} positions; prepare the data with a smaller --max-length"
        )
    taps = settings.taps if settings.taps is not None else _shape_taps(settings, config)
    require_taps(taps, config.num_hidden_layers)
    identity = states_identity(
        target_digest(settings.target), settings.target_settings, taps, final=settings.final, store=store
    )
    manifest = StatesManifest(
        identity=identity,
        hidden_size=config.hidden_size,
        samples=settings.counts,
        shard_bytes=settings.shard_bytes,
        made_with={
            **versions(),
            "device": settings.device,
            "attention": settings.target_settings.attention,
        },
    )
    token_bytes = states_bytes(identity, config.hidden_size)
    return manifest, plan_layout(lengths, token_bytes=token_bytes, shard_bytes=settings.shard_bytes)


def load_for(settings: StatesSettings) -> Target:
    return build_target(settings.target, settings.target_settings, torch.device(settings.device))


def _model_and_data(fit: Sequence[str]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    if not fit:
        return {}, {}
    if not any(word.split("=", 1)[0] in ("--config", "-c") for word in fit):
        raise ValueError(f"{fit[0]} is a setting of `fit`, which needs --config with the rest of them")
    return read_sections(fit)


def _shape_taps(settings: StatesSettings, config: Any) -> tuple[int, ...]:
    names = ("num_layers", "num_taps", "target_layer_ids")
    return taps_for(config, **{name: settings.shape[name] for name in names})


def _needs_final(objective: Mapping[str, Any] | None) -> bool:
    if not objective:
        return False
    module, _, name = objective["class_path"].rpartition(".")
    return bool(getattr(import_module(module), name).needs_target_logits)


def _required(value: Any, option: str) -> Any:
    if value is None:
        raise ValueError(f"give {option}, or --config with the YAML of the run, which says it")
    return value
