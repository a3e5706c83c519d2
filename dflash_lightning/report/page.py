"""The report as one HTML page that needs nothing else: no script, no request, no font.

in    runs with their verdicts
out   run_page, compare_page: the whole file as text
law   every text that comes from a log or a config is escaped
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from dflash_lightning.report.facts import headline, key_figures, settings_of
from dflash_lightning.report.figures.catalogue import figures_of, missing_from
from dflash_lightning.report.figures.overlay import overlays
from dflash_lightning.report.figures.palette import ROLES
from dflash_lightning.report.figures.reading import num_buckets
from dflash_lightning.report.figures.sheet import HALF, PHONE, WIDE, Figure, Mark, draw_svg
from dflash_lightning.report.page_style import style_sheet
from dflash_lightning.report.run import Run
from dflash_lightning.report.verdict import Verdict

TONES = {"instability": "bad", "checkpoint": "caution", "steady": "calm", "unknown": "unknown"}
"""How a verdict looks; the others explain what the eye may take for trouble."""
MOST_STEPS = 12
FOOTER = (
    "Written by DFlash-Lightning, <code>python cli.py report</code>. Every value covers all optimizer steps "
    "since the value before it, unless a figure says otherwise."
)


def run_page(run: Run, verdicts: Sequence[Verdict]) -> str:
    """Everything about one run: verdicts, facts, figures, what is missing."""
    figures = figures_of(run, marks=marked(verdicts))
    parts = [
        _header("Run report", run.name, [run.path]),
        f'<section class="verdicts" aria-label="Verdicts">{_verdicts(verdicts, run)}</section>',
        f"<h2>Key figures</h2>{_key_figures(key_figures(run))}",
        _settings(settings_of(run)),
        f"<h2>Figures</h2>{_mark_legend(verdicts)}{_charts(figures)}",
        _missing(missing_from(run)),
        _notes(run.notes),
    ]
    return _document(f"{run.name}: run report", parts, num_buckets(run))


def compare_page(runs: Mapping[str, Run], verdicts: Mapping[str, Sequence[Verdict]]) -> str:
    """Several runs side by side: a table of key figures, verdicts of each, the same values overlaid."""
    cards = "".join(
        f"<h2>{escape(name)}</h2>"
        f'<section class="verdicts">{_verdicts(verdicts[name], run)}</section>{_settings(settings_of(run))}'
        f"{_notes(run.notes)}"
        for name, run in runs.items()
    )
    parts = [
        _header("Runs compared", " / ".join(runs), [run.path for run in runs.values()]),
        f"<h2>Key figures</h2>{_table(runs, verdicts)}",
        f"<h2>Figures</h2>{_charts(overlays(runs))}",
        cards,
    ]
    return _document(f"{', '.join(runs)}: runs compared", parts, 0)


def marked(verdicts: Iterable[Verdict]) -> list[Mark]:
    """Steps that the figures mark: those of every verdict, what can ruin a run as an alarm."""
    return [
        Mark(step=step, alarming=verdict.kind == "instability")
        for verdict in verdicts
        for step in verdict.steps
    ]


def _document(title: str, parts: Sequence[str], buckets: int) -> str:
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style_sheet(buckets)}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(part for part in parts if part)
        + f"\n<footer>{FOOTER}</footer>\n</main>\n</body>\n</html>\n"
    )


def _header(kicker: str, title: str, paths: Sequence[str]) -> str:
    where = "".join(f"<p>{escape(path)}</p>" for path in paths)
    return f'<header><div class="kicker">{kicker}</div><h1>{escape(title)}</h1>{where}</header>'


def _verdicts(verdicts: Sequence[Verdict], run: Run) -> str:
    return "\n".join(_verdict(verdict, run) for verdict in verdicts)


def _verdict(verdict: Verdict, run: Run) -> str:
    evidence = "".join(f"<li>{escape(line)}</li>" for line in verdict.evidence)
    listed = f"<ul>{evidence}</ul>" if evidence else ""
    return (
        f'<article class="card verdict {TONES.get(verdict.kind, "notice")}">'
        f'<div class="kind">{escape(verdict.kind)}</div>'
        f"<h3>{escape(headline(verdict))}</h3>{listed}{_steps(verdict.steps, run)}</article>"
    )


def _steps(steps: Sequence[int], run: Run) -> str:
    if not steps:
        return ""
    shown = "".join(f"<b>{step:,}</b>" for step in steps[:MOST_STEPS])
    more = f" and {len(steps) - MOST_STEPS} more" if len(steps) > MOST_STEPS else ""
    around = max(20, int(run.steps[-1] - run.steps[0]) // 50) if len(run.steps) else 20
    closer = f"python cli.py report {run.path} --steps {max(0, steps[0] - around)}:{steps[0] + around} --text"
    return f'<p class="steps">Look at step {shown}{more}<br><code>{escape(closer)}</code></p>'


def _key_figures(figures: Mapping[str, str]) -> str:
    tiles = "".join(
        f'<div class="card"><dt>{escape(label)}</dt><dd>{escape(text)}</dd></div>'
        for label, text in figures.items()
    )
    rows = math.ceil(len(figures) / 6)  # as even as can be: no lone tile in the last row
    return f'<dl class="figures" style="--columns:{math.ceil(len(figures) / max(1, rows))}">{tiles}</dl>'


def _settings(settings: Mapping[str, str]) -> str:
    if not settings:
        return ""
    rows = "".join(f"<div><dt>{escape(a)}</dt><dd>{escape(b)}</dd></div>" for a, b in settings.items())
    return f'<dl class="card settings">{rows}</dl>'


def _mark_legend(verdicts: Sequence[Verdict]) -> str:
    kinds = [verdict.kind for verdict in verdicts if verdict.steps]
    parts = ['<span class="mark"><i class="dash"></i>instability</span>'] * ("instability" in kinds)
    others = ", ".join(kind for kind in kinds if kind != "instability")
    parts += [f'<span class="mark"><i class="tick"></i>{escape(others)}</span>'] * bool(others)
    return f'<p class="aside above">Steps that the verdicts name: {" ".join(parts)}</p>' if parts else ""


def _charts(figures: Sequence[Figure]) -> str:
    return f'<div class="charts">{"".join(_chart(figure) for figure in figures)}</div>'


def _chart(figure: Figure) -> str:
    """Two pictures of one figure, of which the style sheet shows one: text must not shrink on a phone."""
    look = (("broad", WIDE if figure.wide else HALF), ("narrow", PHONE))
    pictures = "".join(
        draw_svg(figure, size).replace(
            "<svg", f'<svg class="{name}" role="img" aria-label="{escape(figure.title)}"', 1
        )
        for name, size in look
    )
    return (
        f'<figure class="card{" wide" * figure.wide}" id="{figure.name}"><h3>{escape(figure.title)}</h3>'
        f"{pictures}<figcaption>{escape(figure.caption)}</figcaption></figure>"
    )


def _missing(missing: Mapping[str, str]) -> str:
    if not missing:
        return ""
    named = [f"{shown} ({callback})" if callback else shown for shown, callback in missing.items()]
    return (
        f'<p class="aside">Not drawn, because the logs hold no such values: {escape(", ".join(named))}. '
        "In brackets: the callback to list in the config that would log them.</p>"
    )


def _notes(notes: Sequence[str]) -> str:
    rows = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f'<ul class="aside">{rows}</ul>' if rows else ""


def _table(runs: Mapping[str, Run], verdicts: Mapping[str, Sequence[Verdict]]) -> str:
    figures = {name: key_figures(run) for name, run in runs.items()}
    labels = dict.fromkeys(label for facts in figures.values() for label in facts)
    head = "".join(
        f'<th><span class="key" style="background:var(--{ROLES[i % len(ROLES)]})"></span>{escape(name)}</th>'
        for i, name in enumerate(runs)
    )
    rows = "".join(
        f"<tr><th>{escape(label)}</th>"
        + "".join(f"<td>{escape(facts.get(label, '-'))}</td>" for facts in figures.values())
        + "</tr>"
        for label in labels
    )
    verdict_row = "".join(f"<td>{_first_kind(verdicts[name])}</td>" for name in runs)
    return (
        f'<div class="card scroll"><table><thead><tr><th></th>{head}</tr></thead>'
        f"<tbody><tr><th>verdict</th>{verdict_row}</tr>{rows}</tbody></table></div>"
    )


def _first_kind(verdicts: Sequence[Verdict]) -> str:
    return "".join(
        f'<span class="kind {TONES.get(verdict.kind, "notice")}">{escape(verdict.kind)}</span>'
        for verdict in verdicts
    )
