"""Whose word is it: `plan` has options of its own, and takes every option of `fit` beside them.

in    the words behind `python cli.py plan`
out   (plan's own words, fit's words), each in order
law   a name with a dot (--model.lr, --data.plan.edges) is a setting of the YAML, and so are --config and
      --seed_everything; all others are plan's own
"""

from collections.abc import Sequence

FIT_OPTIONS = ("--config", "-c", "--seed_everything", "--ckpt_path")


def split_words(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """A value follows its option, behind `=` or as the next word; "-1" is a value, "--x" is none."""
    own: list[str] = []
    fit: list[str] = []
    side = own
    for word in words:
        if word.startswith("--") or word in ("-c", "-h"):
            name = word.split("=", 1)[0]
            side = fit if "." in name or name in FIT_OPTIONS else own
        side.append(word)
    return own, fit
