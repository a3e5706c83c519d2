"""The parser's account of a wrong value, cut down to what is wrong.

in    the message of a ValueError of jsonargparse, or of anybody else
out   the reasons alone where it lists why none of several types fits; else the message as it is
law   what our own classes say about a value is never lost
"""

import re

UNION = "Does not validate against any of the Union subtypes"
REASON = re.compile(r"^ {0,2}- ")  # further in are lists inside a reason
ABOUT_OTHER_TYPES = re.compile(r"^ {0,2}- (Expected a <class 'NoneType'>|Not a valid subclass of )")


def reasons(message: str) -> str:
    """Without the types that were tried, what each of the unmeant ones lacks, and the value's repr."""
    if not message.startswith(UNION):
        return message
    _, _, tail = message.partition("Errors:\n")
    listed, _, _ = tail.partition("Given value type:")
    starts = [line for line in re.split(r"\n(?= {0,2}- )", listed.rstrip()) if REASON.match(line)]
    told = [REASON.sub("", text, count=1) for text in starts if not ABOUT_OTHER_TYPES.match(text)]
    return "\n".join(told) or message
