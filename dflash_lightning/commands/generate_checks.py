"""What `generate` refuses before the work: options that would be ignored, or that mean nothing together."""

from jsonargparse import Namespace

from dflash_lightning.commands.decoding_options import refuse_given, require_decoding
from dflash_lightning.commands.sampling_options import require_sampling

WITH_DRAFTS = ("drafter", "check", "tree", "block_size", "show_rejected", "sampling")
OF_THE_TEMPLATE = ("chat_template", "template_arguments")


def require_sense(options: Namespace, defaults: Namespace) -> None:
    """Raises ValueError. `defaults`: the options where nobody gives any."""
    if options.plain:
        refuse_given(options, defaults, WITH_DRAFTS, "about drafts, and --plain makes none")
    elif options.drafter is None:
        raise ValueError("give the --drafter to draft with, or --plain to decode with the target alone")
    if options.raw:
        refuse_given(options, defaults, OF_THE_TEMPLATE, "about the chat template, and --raw uses none")
    require_decoding(options, [] if options.tree is None else [options.tree])
    require_sampling(options)
    if options.tree is not None and options.show_rejected:
        raise ValueError("--show-rejected shows what a chain of drafts lost; it goes not with --tree")
    if options.sampling == "rejection":
        _require_chance(options)


def _require_chance(options: Namespace) -> None:
    """Rejection sampling needs something to draw, chains, and nothing that compares texts."""
    if options.temperature == 0:
        raise ValueError(
            "--sampling rejection draws tokens, but at --temperature 0 nothing is drawn; give a temperature "
            "above 0"
        )
    if options.tree is not None:
        raise ValueError(
            "--sampling rejection goes not with --tree, whose paths share drafts; take --sampling coupling"
        )
    if options.check:
        raise ValueError(
            "--check compares with plain sampling from the same seed, which rejection sampling equals in "
            "distribution only, not token for token; check with --sampling coupling"
        )
