"""What `evaluate` refuses before the work: options that mean nothing together, files that cannot be written.

in    the options, and what they are when nobody gives them
out   nothing
law   no option is ignored in silence, and nothing that was measured is lost to a mistake that could be seen
"""

from jsonargparse import Namespace

from dflash_lightning.commands.chat_options import require_no_template
from dflash_lightning.commands.decoding_options import refuse_given, require_decoding
from dflash_lightning.commands.sampling_options import require_sampling
from dflash_lightning.commands.writable import require_file, require_picture

LOCAL = ("target", "drafter", "tree", "batch_size", "block_size", "dtype", "device", "plot")
SERVED = ("model", "concurrency", "timeout")


def require_sense(options: Namespace, defaults: Namespace) -> None:
    """Raises ValueError, OSError."""
    if options.server:
        refuse_given(options, defaults, LOCAL, "for decoding here, not for --server")
        require_no_template(options)
    else:
        refuse_given(options, defaults, SERVED, "for asking a --server, and none is named")
        if options.target is None or options.drafter is None:
            raise ValueError(
                "give --target and --drafter to decode here, or --server to ask a running server"
            )
    require_decoding(options, options.tree)
    require_sampling(options)
    if options.batch_size < 1:
        raise ValueError(f"--batch-size {options.batch_size} must be at least 1")
    if options.json:
        require_file(f"--json {options.json}", options.json)
    if options.plot:
        require_picture("--plot", options.plot)
