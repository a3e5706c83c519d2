"""Options that say which S3 server, for every command that takes the address of a checkpoint."""

from typing import TYPE_CHECKING, Any

from jsonargparse import Namespace

if TYPE_CHECKING:  # imported when the work starts: `--help` must not wait for it
    from dflash_lightning.checkpoint.stores import StoreSettings


def add_store_options(parser: Any) -> None:
    """`parser`: of jsonargparse or argparse."""
    add = parser.add_argument_group("S3 server").add_argument
    add("--endpoint-url", metavar="URL", help="server other than AWS (default: AWS_ENDPOINT_URL, or AWS)")
    add("--region", metavar="NAME", help="region (default: from environment or profile)")
    add("--profile", metavar="NAME", help="profile in ~/.aws/config (default: the usual chain)")
    add("--path-style", action="store_true", help="bucket in the path, as most other servers want it")


def store_settings(options: Namespace) -> "StoreSettings":
    """Credentials are no options: they come from the usual AWS chain."""
    from dflash_lightning.checkpoint.stores import StoreSettings

    return StoreSettings(
        endpoint_url=options.get("endpoint_url"),
        region=options.get("region"),
        profile=options.get("profile"),
        path_style=bool(options.get("path_style")),
    )
