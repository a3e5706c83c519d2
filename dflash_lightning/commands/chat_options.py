"""The options of the chat template and of where answers end, for every command that renders chats.

in    the options, the target's tokenizer
out   ChatFormat: the target's template or the named one, with the arguments that it is served with
law   the same words mean the same everywhere, so that a drafter is measured under the template that it was
      trained with
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from jsonargparse import Namespace

if TYPE_CHECKING:  # imported when the work starts: `--help` must not wait for transformers
    from dflash_lightning.data.template import ChatFormat

TEMPLATE = "Jinja file, instead of the tokenizer's own template"
ARGUMENTS = """arguments of the chat template, as in serving: '{"enable_thinking": false}'"""
STOP = "tokens that end an answer, besides those that the target names itself"


def add_template(parser: Any) -> None:
    """What a server would know by itself; `parser`: of jsonargparse, or a group of options."""
    parser.add_argument("--chat-template", metavar="FILE", help=TEMPLATE)
    parser.add_argument("--stop-token", nargs="*", default=[], metavar="TOKEN", help=STOP)


def add_template_arguments(parser: Any) -> None:
    """What a server is told with every request."""
    parser.add_argument(
        "--template-arguments", type=dict[str, Any], default={}, metavar="JSON", help=ARGUMENTS
    )


def named_template(options: Namespace) -> str | None:
    """The text of --chat-template. Raises OSError, or ValueError where it is no text."""
    if options.chat_template is None:
        return None
    try:
        return Path(options.chat_template).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"--chat-template {options.chat_template} is no text in UTF-8: {error}") from error


def require_no_template(options: Namespace) -> None:
    """With a server, that is. Raises ValueError."""
    given = [
        flag
        for flag, value in (("--chat-template", options.chat_template), ("--stop-token", options.stop_token))
        if value
    ]
    if given:
        raise ValueError(
            f"{' and '.join(given)} cannot be sent to a server, which renders chats and ends answers itself: "
            "start the server so; --template-arguments are sent with every request"
        )


def chat_format(options: Namespace, tokenizer: Any, *, way_out: str = "") -> "ChatFormat":
    """How the target reads chats, and where its answers end.

    Args:
        way_out: what else to do where there is no template, such as ", or use --raw".

    Raises:
        ValueError: no template is there, or a stop token is none.
        OSError: the template's file cannot be read.
    """
    from dflash_lightning.data.template import ChatFormat
    from dflash_lightning.data.tokenizer import own_template

    named = named_template(options)
    template = own_template(tokenizer) if named is None else named
    if template is None:
        raise ValueError(
            "the target's tokenizer has no chat template: give the one that it is served with as "
            f"--chat-template FILE{way_out}"
        )
    return ChatFormat(
        tokenizer=tokenizer,
        template=template,
        arguments=options.template_arguments,
        stop_ids=answer_ends(options, tokenizer),
    )


def answer_ends(options: Namespace, tokenizer: Any) -> frozenset[int]:
    """Ids after which the target stops: its own, and those of --stop-token. Raises ValueError."""
    from dflash_lightning.data.tokenizer import stop_ids
    from dflash_lightning.target.loading import load_stop_ids

    return stop_ids(tokenizer, options.stop_token, load_stop_ids(options.target))
