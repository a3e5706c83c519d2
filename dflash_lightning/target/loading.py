"""Opens a target by name or path: its config, its tokenizer, its weights.

in    a folder in Hugging Face format, a hub name, or the name of the embedded default
out   the text config; the tokenizer; a Target, frozen
law   weights that the folder lacks are an error, never fresh random numbers
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]  # public, not re-exported
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig
from transformers.utils import logging as transformers_logging

from dflash_lightning.target.embedded import resolve_target
from dflash_lightning.target.layers import text_config
from dflash_lightning.target.model import Target as Target

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json")


def load_config(name_or_path: str | Path) -> Any:
    """The text config of a target, without its weights."""
    return text_config(_open(AutoConfig.from_pretrained, name_or_path))


def load_tokenizer(name_or_path: str | Path) -> Any:
    """The target's own tokenizer. Raises ValueError where a folder has none."""
    folder = Path(name_or_path)
    if folder.is_dir() and not any((folder / name).exists() for name in _TOKENIZER_FILES):
        raise ValueError(f"target {folder} has no tokenizer (none of {', '.join(_TOKENIZER_FILES)})")
    return _open(AutoTokenizer.from_pretrained, name_or_path)


def load_stop_ids(name_or_path: str | Path) -> list[int]:
    """Where the target stops by itself; often more than the tokenizer's eos."""
    for from_pretrained in (GenerationConfig.from_pretrained, AutoConfig.from_pretrained):
        try:
            ids = getattr(_open(from_pretrained, name_or_path), "eos_token_id", None)
        except (OSError, ValueError):  # a folder may lack either file, or hold a tokenizer alone
            continue
        if ids is not None:
            return [ids] if isinstance(ids, int) else list(ids)
    return []


def load_target(
    name_or_path: str | Path,
    *,
    dtype: torch.dtype = torch.bfloat16,
    device: torch.device | str = "cpu",
    attention: Literal["sdpa", "eager", "flash_attention_2"] = "sdpa",
    layers: int | None = None,
) -> Target:
    """Load a causal LM, freeze it, and check that its head and embedding can be borrowed.

    Args:
        layers: Load the first so many decoder layers only, where the hidden states come from elsewhere and
            the target lends its embedding and head; None: all of them.

    Raises:
        FileNotFoundError: no such folder, and the hub has or gives no such model.
        ValueError: weights are missing or of another shape, or the model is not built like Llama.
    """
    options = {"dtype": dtype, "attn_implementation": attention, "output_loading_info": True}
    if layers is None:
        model, report = _open(AutoModelForCausalLM.from_pretrained, name_or_path, **options)
    else:
        config = _cut_config(name_or_path, layers)
        with _quiet():  # it would list the layers that are left out
            model, report = _open(
                AutoModelForCausalLM.from_pretrained, name_or_path, config=config, **options
            )
    _require_complete(str(name_or_path), report)
    return Target(model.to(device))


def _cut_config(name_or_path: str | Path, layers: int) -> Any:
    """The target's config, with fewer decoder layers."""
    config = _open(AutoConfig.from_pretrained, name_or_path)
    text = text_config(config)
    text.num_hidden_layers = layers
    if getattr(text, "layer_types", None):
        text.layer_types = text.layer_types[:layers]
    return config


@contextmanager
def _quiet() -> Iterator[None]:
    verbosity = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)


def is_hub_name(name: str) -> bool:
    """`owner/model` that is no folder here. By the hub's own rule: ./model and ../model never are."""
    if name.count("/") != 1 or Path(name).exists():
        return False
    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return True


def _open(from_pretrained: Callable[..., Any], name_or_path: str | Path, **options: Any) -> Any:
    """Folders and the embedded name through resolve_target; `owner/model` that is no folder from the hub."""
    name = str(name_or_path)
    if not is_hub_name(name):
        return from_pretrained(resolve_target(name_or_path), **options)
    try:
        return from_pretrained(name, **options)
    except OSError as error:
        raise FileNotFoundError(
            f"target {name!r} is no folder here and could not be had from the Hugging Face hub; give the "
            "path of a folder in Hugging Face format, or log in and check the name"
        ) from error


def _require_complete(name: str, report: Mapping[str, Any]) -> None:
    """transformers fills gaps with random numbers and a log line; no drafter can learn from those."""
    missing, mismatched = (
        sorted(report["missing_keys"]),
        sorted(str(key[0]) for key in report["mismatched_keys"]),
    )
    if missing or mismatched:
        raise ValueError(
            f"target {name} lacks {len(missing)} weights and has {len(mismatched)} of another shape, "
            f"first {(missing + mismatched)[0]}; the folder is incomplete or belongs to another config.json"
        )
