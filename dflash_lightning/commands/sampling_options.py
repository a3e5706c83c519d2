"""The options of sampled decoding, wherever a command decodes."""

from jsonargparse import ArgumentParser


def add_sampling(parser: ArgumentParser, *, seed_help: str) -> None:
    """Greedy unless --temperature says otherwise."""
    add = parser.add_argument
    add("--temperature", type=float, default=0.0, metavar="T", help="0: the likeliest tokens")
    add("--top-k", type=int, default=0, metavar="K", help="sample from the K likeliest tokens only; 0: all")
    add("--top-p", type=float, default=1.0, metavar="P", help="sample from this share of probability only")
    add("--seed", type=int, default=0, metavar="N", help=seed_help)
