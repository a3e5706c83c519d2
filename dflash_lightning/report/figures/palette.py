"""Colours of the report: one table, two appearances.

in    nothing
out   LIGHT and DARK (role -> hex), bucket_colours, `themed` (hex of the light table -> CSS variable)
law   within a table no two roles share a hex, so a picture drawn in the light colours can be recoloured
"""

import re

LIGHT = {
    "ink": "#1c2430",
    "muted": "#687386",
    "line": "#dfe3ea",
    "main": "#2258d6",
    "second": "#c2620a",
    "third": "#0d8269",
    "raw": "#9aa8bd",
    "bad": "#d0233f",
    "warn": "#a97700",
}
ROLES = ("main", "second", "third", "bad", "warn", "raw")
LINES = ("-", "--", ":")
"""For lines of which nobody knows the number: colours first, then the same colours dashed, then dotted."""
DARK = {
    "ink": "#e6eaf1",
    "muted": "#98a3b5",
    "line": "#333c4a",
    "main": "#7ea6ff",
    "second": "#f2a154",
    "third": "#4fc7a8",
    "raw": "#66748b",
    "bad": "#ff6f7f",
    "warn": "#e2b93b",
}
_SHORT_TO_LONG = {
    "light": ("#3b3fb5", "#1d8fb8", "#2f9e5b", "#d9930d", "#c8324f"),
    "dark": ("#8f96ff", "#4cc3ec", "#63d391", "#f5c04e", "#ff7d93"),
}
"""Buckets are ordered by length, and so are their colours: cold is short, warm is long."""


def bucket_colours(num_buckets: int, *, dark: bool = False) -> list[str]:
    """One hex per bucket, from short to long; a single bucket takes the first."""
    anchors = [_channels(colour) for colour in _SHORT_TO_LONG["dark" if dark else "light"]]
    colours = []
    for index in range(num_buckets):
        at = index * (len(anchors) - 1) / max(1, num_buckets - 1)
        below = min(int(at), len(anchors) - 2)
        share = at - below
        mixed = (a + share * (b - a) for a, b in zip(anchors[below], anchors[below + 1], strict=True))
        colours.append("#" + "".join(f"{round(channel):02x}" for channel in mixed))
    return colours


def css_variables(num_buckets: int, *, dark: bool = False) -> str:
    """Declarations of every colour, for a `:root` rule."""
    table = {**(DARK if dark else LIGHT)}
    table |= {f"b{i}": colour for i, colour in enumerate(bucket_colours(num_buckets, dark=dark))}
    return "".join(f"--{role}:{colour};" for role, colour in table.items())


def themed(svg: str, num_buckets: int) -> str:
    """The picture with each colour of the light table replaced by its CSS variable."""
    names = {colour: role for role, colour in LIGHT.items()}
    names |= {colour: f"b{i}" for i, colour in enumerate(bucket_colours(num_buckets))}
    pattern = re.compile("|".join(map(re.escape, names)))
    return pattern.sub(lambda found: f"var(--{names[found[0]]})", svg)


def _channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
