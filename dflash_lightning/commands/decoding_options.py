"""The options of decoding in this process, for `generate` and `evaluate`; refused by name before the work."""

from collections import Counter
from collections.abc import Sequence

from jsonargparse import ArgumentParser, Namespace

DTYPES = ["float32", "bfloat16", "float16"]


def add_decoding(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--max-new-tokens", type=int, default=128, metavar="N", help="longest answer, in tokens")
    add("--block-size", type=int, metavar="B", help="slots per block; at most, and by default, as trained")
    add("--dtype", choices=DTYPES, default="float32", help="of target and drafter")
    add("--device", default="cpu", help="such as cpu or cuda:0")


def require_decoding(options: Namespace, budgets: Sequence[int]) -> None:
    """Everything that needs no target; `budgets` are those of --tree. Raises ValueError."""
    if options.max_new_tokens < 1:
        raise ValueError(f"--max-new-tokens {options.max_new_tokens} must be at least 1")
    if options.block_size is not None and options.block_size < 1:
        raise ValueError(
            f"--block-size {options.block_size} must be at least 1, the anchor, which drafts nothing"
        )
    for budget in budgets:
        if budget < 0:
            raise ValueError(f"--tree {budget} counts the nodes of a tree: 0 or more")
    twice = [budget for budget, times in Counter(budgets).items() if times > 1]
    if twice:
        raise ValueError(f"--tree names {twice[0]} more than once; each tree is decoded once")


def refuse_given(options: Namespace, defaults: Namespace, names: Sequence[str], why: str) -> None:
    """Raises ValueError where any of these options is given, that is, not as in `defaults`."""
    given = [f"--{name.replace('_', '-')}" for name in names if options[name] != defaults[name]]
    if given:
        raise ValueError(f"{', '.join(given)}: {why}; leave out one or the other")


def require_device(name: str) -> None:
    """Put a number there and read it. Raises ValueError where that fails; imports torch."""
    import torch

    try:
        torch.zeros(1, device=name).item()
    except (RuntimeError, AssertionError, ImportError) as error:  # torch has a kind for each way to fail
        reason = str(error).splitlines()[0].split(". ")[0]
        raise ValueError(
            f"--device {name!r} cannot be used here: {reason}; name one that is there, such as cpu or cuda:0"
        ) from error
