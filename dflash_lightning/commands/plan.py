"""`python cli.py plan`: what a run will see, before it costs a GPU hour. Parses, plans, prints."""

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jsonargparse import SUPPRESS, ArgumentParser, Namespace

from dflash_lightning.commands.teaching_help import TeachingHelp
from dflash_lightning.commands.writable import require_picture
from dflash_lightning.plan_view import as_json, compare, table
from dflash_lightning.plan_view.facts import PlanFacts, gather_facts
from dflash_lightning.plan_view.geometry import Geometry, read_geometry
from dflash_lightning.plan_view.lengths import DEFAULT_SHARE
from dflash_lightning.plan_view.names import NAMES
from dflash_lightning.plan_view.settings import PlanSettings, load_samples, with_flags
from dflash_lightning.plan_view.words import split_words
from dflash_lightning.short_errors import ShortErrors

MANY_SAMPLES = 3_000_000
"""From here on planning takes long enough to say so."""

DESCRIPTION = """\
Show what a run will see, from lengths alone: no model, no GPU, seconds for a million samples.

  python cli.py plan --config configs/qwen3_8b.yaml --plot plan.png
  python cli.py plan --lengths lengths.npy --edges 1216,1728,2240,2784,3296,8192 --world-size 8 --accumulate 4
  python cli.py plan --config configs/qwen3_8b.yaml --compare credit,diversity_first,shuffle

With --config everything is read as `fit` reads it, further --config files and --model.lr 3e-4 included; the
options below win over it. --lengths takes a .npy file of integers, tokens per sample, and needs neither
dataset nor YAML.

How to read it
  padding efficiency  real tokens / padded tokens: what is missing to 1 is computed and thrown away.
  longest, final run  batches of one bucket in a row. A long final run: every epoch ends on one length.
  TV                  total variation: the share of an optimizer window's batches that ought to come from
                      another bucket to match the epoch. 0 is the epoch's own mix; the floor is the least
                      that whole batches allow; `shuffled` is the same batches in random order, which an
                      order has to beat.
  straggler           load of the slowest rank / load of the mean rank, at each optimizer step. At 1.05 a
                      step takes 5 % longer than evenly loaded ranks would need. linear counts padded tokens,
                      quadratic adds attention, blocks adds the drafter's block positions: models of cost,
                      nothing is timed.
  digest              equal digests mean equal batches in equal order; a checkpoint resumes only on its own.
Warnings go to standard error. --format json prints JSON alone; shares there are 0 to 1, memory is in bytes.
"""
LENGTHS = "tokens per sample, a .npy file; takes the place of the token store's"
SUPERVISED = f"tokens with loss: a .npy file, or a share (default: the store's counts, else {DEFAULT_SHARE})"
EDGES = "upper bounds in tokens (1024,4096,8192), or quantile, or optimal (default: quantile)"
BLOCKS = "anchors x block size of a batch, at most; 0: off (default: 65536)"
QUADRATIC_BUDGET = "padded length at which a token counts twice against --max-tokens (default: never)"
QUADRATIC_LENGTH = (
    "padded length at which attention doubles a batch's cost, for dealing to ranks (default: 8192)"
)
BLOCK_COST = "cost of a block position in padded tokens, for dealing to ranks (default: 1)"
PACKING = "pool_sorted, random_order, mixed_buckets or window_first[:batches] (default: pool_sorted)"
COMPARE = f"strategies side by side, joined by commas: {', '.join(NAMES)}; a+b is both at once"


def main(args: Sequence[str] | None = None) -> int:
    """Exit code 0. Raises ValueError and OSError where the input makes no sense: main.py prints them."""
    own, fit = split_words(sys.argv[1:] if args is None else args)
    options = make_parser().parse_args(own)
    if "plot" in options:
        require_picture("--plot", options.plot)
    settings = _settings(options, fit)
    samples, source = load_samples(
        settings, lengths=options.get("lengths"), supervised=options.get("supervised")
    )
    if len(samples) >= MANY_SAMPLES:
        print(f"planning {len(samples):,} samples ...", file=sys.stderr, flush=True)
    if "compare" in options:
        return _compare(options, settings, samples, source)
    geometry = _geometry(settings)
    started = time.perf_counter()
    facts = gather_facts(samples, settings, geometry)
    if options.format == "json":
        values = as_json.as_values(facts)
        print(json.dumps({**values, "seconds": _since(started)}, indent=2))
    else:
        text = table.as_text(facts, source=source)
        print(f"{text}\n\nplanned and judged in {_since(started):.2f} s")
    _warn({"": facts})
    if "plot" in options:
        from dflash_lightning.plan_view.pictures import draw_plan  # matplotlib takes a second

        draw_plan(facts, Path(options.plot), source=source)
        print(f"wrote {options.plot}", file=sys.stderr)
    return 0


def make_parser() -> ArgumentParser:
    # What was not given is absent, so that the YAML decides; the help names the default where nobody does.
    parser = ShortErrors(
        prog="python cli.py plan",
        description=DESCRIPTION,
        formatter_class=TeachingHelp,
        argument_default=SUPPRESS,
    )
    add = parser.add_argument
    # Read here for the help only: split_words has taken them out.
    add("--config", metavar="YAML", help="settings of `fit`; a second file is laid over the first")
    add("--lengths", metavar="FILE", help=LENGTHS)
    add("--supervised", metavar="FILE|SHARE", help=SUPERVISED)
    add("--format", choices=["text", "json"], default="text", help="for people, or for programs")
    add("--plot", metavar="PNG", help="write a page of pictures (or .pdf, .svg)")
    add("--compare", metavar="NAMES", help=COMPARE)
    add("--target", help="folder of the target, for the estimate of memory (default: the YAML's)")
    _add_plan(parser)
    _add_run(parser)
    return parser


def _add_plan(parser: ArgumentParser) -> None:
    add = parser.add_argument_group("plan, as data.plan in the YAML").add_argument
    add("--edges", metavar="EDGES", help=EDGES)
    add("--num-buckets", type=int, metavar="N", help="buckets that a rule makes (default: 6)")
    add(
        "--super-buckets",
        type=int,
        metavar="N",
        help="merge neighbouring buckets into so many (default: none)",
    )
    add("--min-length", type=int, metavar="TOKENS", help="leave shorter samples out (default: 0)")
    add(
        "--oversize",
        choices=["error", "drop", "truncate"],
        help="samples beyond the last edge (default: error)",
    )
    add(
        "--max-tokens",
        type=int,
        metavar="N",
        help="rows x padded length of a batch, at most (default: 49152)",
    )
    add("--quadratic-budget", type=float, metavar="TOKENS", help=QUADRATIC_BUDGET)
    add("--max-rows", type=int, metavar="N", help="samples in a batch, at most (default: 64)")
    add("--max-block-tokens", type=int, metavar="N", help=BLOCKS)
    add("--pad-multiple", type=int, metavar="N", help="round lengths up before packing (default: 1)")
    add("--packing", metavar="NAME", help=PACKING)
    add("--static-shapes", action="store_true", help="one shape per bucket, for compiled kernels")
    add("--order", metavar="NAME", help="credit, diversity_first or shuffle (default: credit)")
    add("--tail", choices=["split", "drop"], help="the last, short window (default: split)")
    add("--quadratic-length", type=float, metavar="TOKENS", help=QUADRATIC_LENGTH)
    add("--block-cost", type=float, metavar="X", help=BLOCK_COST)


def _add_run(parser: ArgumentParser) -> None:
    add = parser.add_argument_group("run").add_argument
    add("--world-size", type=int, metavar="N", help="ranks (default: devices x num_nodes, else 1)")
    add(
        "--accumulate", type=int, metavar="N", help="batches of a rank behind one optimizer step (default: 1)"
    )
    add("--num-anchors", type=int, metavar="N", help="blocks per sample and epoch (default: 512)")
    add("--block-size", type=int, metavar="N", help="slots of a block, the anchor included (default: 16)")
    add("--seed", type=int, metavar="N", help="decides order and anchors (default: 0)")
    add("--epoch", type=int, metavar="N", help="epoch to plan, from 0 (default: 0)")
    add("--max-epochs", type=int, metavar="N", help="epochs of the run, for its step count")
    add("--max-steps", type=int, metavar="N", help="optimizer steps of the run, at most")


def _settings(options: Namespace, fit: Sequence[str]) -> PlanSettings:
    if fit and not any(word.split("=", 1)[0] in ("--config", "-c") for word in fit):
        raise ValueError(f"{fit[0]} is a setting of `fit`, which needs --config with the rest of them")
    settings = PlanSettings()
    if fit:
        from dflash_lightning.plan_view.yaml_settings import read_settings

        settings = read_settings(fit)
    return with_flags(settings, options.as_dict())


def _geometry(settings: PlanSettings) -> Geometry | str | None:
    if settings.model is None:
        return None
    return read_geometry(settings.model, block_size=settings.block_size)


def _compare(options: Namespace, settings: PlanSettings, samples: Any, source: str) -> int:
    started = time.perf_counter()
    compared = compare.compare(samples, compare.compared_settings(settings, options.compare))
    if options.format == "json":
        values = {"strategies": compare.compare_values(compared), "source": source}
        print(json.dumps({**values, "seconds": _since(started)}, indent=2))
    else:
        text = compare.compare_text(compared, source=source)
        print(f"{text}\n\nplanned and judged in {_since(started):.2f} s")
    _warn(compared)
    if "plot" in options:
        from dflash_lightning.plan_view.compare_picture import draw_comparison

        draw_comparison(compared, Path(options.plot), source=source)
        print(f"wrote {options.plot}", file=sys.stderr)
    return 0


def _since(started: float) -> float:
    return time.perf_counter() - started


def _warn(facts_by_name: dict[str, PlanFacts]) -> None:
    """Each warning once, with the names of all strategies that it holds for."""
    names: dict[str, list[str]] = {}
    for name, facts in facts_by_name.items():
        for warning in facts.warnings:
            names.setdefault(warning, []).append(name)
    for warning, holders in names.items():
        named = f"{', '.join(holders)}: " if any(holders) else ""
        print(f"warning: {named}{warning}", file=sys.stderr)
