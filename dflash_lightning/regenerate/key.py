"""Where the key of a server is read, and what it may hold.

in    the value of an environment variable
out   the key as a header takes it
law   no message holds the key or a part of it
"""

KEY_VARIABLE = "DFLASH_SERVER_KEY"


def clean_key(key: str | None) -> str | None:
    """Without spaces and line ends around it; None where nothing is left.

    Raises:
        ValueError: a header cannot hold it.
    """
    key = (key or "").strip()
    if not (key.isascii() and key.isprintable()):
        raise ValueError(
            f"the key in {KEY_VARIABLE} holds a character that is no printable ASCII, which no header can "
            "carry: set it again, without line ends and typographic characters"
        )
    return key or None
