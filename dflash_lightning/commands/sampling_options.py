"""The options of sampled decoding, wherever a command decodes; refused by name, without importing torch."""

from math import inf

from jsonargparse import ArgumentParser, Namespace

SEEDS = 1 << 63


def add_sampling(parser: ArgumentParser, *, seed_help: str) -> None:
    """Greedy unless --temperature says otherwise."""
    add = parser.add_argument
    add("--temperature", type=float, default=0.0, metavar="T", help="0: the likeliest tokens")
    add("--top-k", type=int, default=0, metavar="K", help="sample from the K likeliest tokens only; 0: all")
    add("--top-p", type=float, default=1.0, metavar="P", help="sample from this share of probability only")
    add("--seed", type=int, default=0, metavar="N", help=seed_help)


def require_sampling(options: Namespace) -> None:
    """Raises ValueError for what cannot be drawn from, and for limits on luck where there is none."""
    temperature, top_k, top_p, seed = options.temperature, options.top_k, options.top_p, options.seed
    if not 0 <= temperature < inf:
        raise ValueError(
            f"--temperature {temperature:g} divides the logits: 0 (the likeliest tokens) or more"
        )
    if top_k < 0:
        raise ValueError(f"--top-k {top_k} counts tokens: 1 or more, or 0 for all")
    if not 0 < top_p <= 1:
        raise ValueError(f"--top-p {top_p:g} is a share of probability: above 0, and at most 1 for all")
    if not 0 <= seed < SEEDS:
        raise ValueError(f"--seed {seed} must be at least 0 and below 2^63")
    if temperature == 0 and (top_k or top_p < 1):
        flag = f"--top-k {top_k}" if top_k else f"--top-p {top_p:g}"
        raise ValueError(
            f"{flag} limits what is drawn, but at --temperature 0 nothing is drawn; give a temperature above "
            "0, or leave it out"
        )
