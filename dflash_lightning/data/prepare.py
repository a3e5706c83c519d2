"""Chats -> token store: composes the stages.

in    PrepareConfig, the target's tokenizer
out   a token store on disk, its manifest and the report of every row
law   the store is a function of the inputs and the settings: the number of workers never changes a byte of it
"""

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from dflash_lightning.data.conversations import ReadyTokens, RowError, parse_row
from dflash_lightning.data.loss_mask import require_supervisable
from dflash_lightning.data.manifest import Manifest, SourceRecord
from dflash_lightning.data.pool import ordered_map
from dflash_lightning.data.prepare_config import PrepareConfig as PrepareConfig
from dflash_lightning.data.report import Report
from dflash_lightning.data.sources import Source, find_sources, require_distinct
from dflash_lightning.data.split import SPLITS, Splitter
from dflash_lightning.data.template import ChatFormat, probe_format
from dflash_lightning.data.tokenizer import (
    ChatTokenizer,
    own_template,
    stop_ids,
    template_hash,
    tokenizer_hash,
    vocab_size,
)
from dflash_lightning.data.tokens import EncodedChunk, Encoder, parse_json
from dflash_lightning.data.writer import StoreWriter, require_free

BYTES_PER_WORKER = 1_000_000  # a process takes 3 s to start, in which one alone reads about so much
OnProgress = Callable[[int, int], None]


def prepare(
    config: PrepareConfig,
    tokenizer: ChatTokenizer,
    *,
    target_stop_ids: Sequence[int] = (),
    on_progress: OnProgress = lambda done, total: None,
) -> tuple[Manifest, Report]:
    """Write the store at config.output. Raises ValueError for unusable input: nothing is written then.

    target_stop_ids: where the target stops generating, besides the tokenizer's eos.
    on_progress: called with (done, total), in bytes of input.
    """
    output = Path(config.output)
    require_free(output, overwrite=config.overwrite)
    held_out = find_sources(config.validation_input)
    sources = require_distinct([*held_out, *find_sources(config.input)])
    form = _form(config, tokenizer, target_stop_ids) if _has_chats(sources) else None
    encoder = Encoder(
        form=form,
        vocab_size=vocab_size(tokenizer),
        turns=config.turns,
        max_length=config.max_length,
        truncate=config.truncate,
    )
    splitter = Splitter(0.0 if held_out else config.validation_share)
    report = Report()
    total, done = sum(source.num_bytes for source in sources), 0
    work = (chunk for index, source in enumerate(sources) for chunk in source.chunks(index))
    with StoreWriter(output) as writer:
        for chunk in ordered_map(encoder.encode_chunk, work, workers=_num_workers(config, total)):
            path, is_held_out = sources[chunk.source].path, chunk.source < len(held_out)
            _take(chunk, path, splitter, writer, report, held_out=is_held_out)
            report.require_hope()
            done += chunk.num_bytes
            on_progress(done, total)
        report.require_enough(config.max_skipped)
        manifest = writer.publish(partial(_manifest, config, tokenizer, encoder, report, sources))
    return manifest, report


def _take(
    chunk: EncodedChunk,
    path: Path,
    splitter: Splitter,
    writer: StoreWriter,
    report: Report,
    *,
    held_out: bool,
) -> None:
    for line, outcome in zip(chunk.numbers, chunk.outcomes, strict=True):
        try:
            if isinstance(outcome, RowError):
                raise outcome
            split = splitter.place(outcome.input_ids, held_out=held_out)
            writer.add(outcome, split, source=chunk.source, line=line)
            report.keep(outcome, split, chunk.source)
        except RowError as error:
            report.skip(error, chunk.source, f"{path}:{line}")


def _has_chats(sources: Sequence[Source]) -> bool:
    """Whether a template is needed, by the first row of each source."""
    first_rows = [
        next(source.chunks()).rows[0] for source in sources
    ]  # all: finds empty files before the work
    return any(map(_is_chat, first_rows))


def _is_chat(row: object) -> bool:
    try:
        return not isinstance(parse_row(parse_json(row) if isinstance(row, bytes) else row), ReadyTokens)
    except RowError:
        return True  # counted later, with its line


def _form(config: PrepareConfig, tokenizer: ChatTokenizer, target_stop_ids: Sequence[int]) -> ChatFormat:
    template = config.template if config.template is not None else own_template(tokenizer)
    if template is None:
        raise ValueError(
            "the tokenizer has no chat template, so chats cannot become tokens: give the one that the target "
            "is served with as --chat-template FILE, or rows with input_ids and loss_mask"
        )
    stops = stop_ids(tokenizer, config.stop_tokens, target_stop_ids)
    bare = ChatFormat(
        tokenizer=tokenizer, template=template, arguments=config.template_arguments, stop_ids=stops
    )
    form = probe_format(bare)
    require_supervisable(form)
    return form


def _num_workers(config: PrepareConfig, num_bytes: int) -> int:
    return config.workers or min(os.cpu_count() or 1, 1 + num_bytes // BYTES_PER_WORKER)


def _manifest(
    config: PrepareConfig,
    tokenizer: ChatTokenizer,
    encoder: Encoder,
    report: Report,
    sources: Sequence[Source],
    digest: str,
) -> Manifest:
    form = encoder.form
    return Manifest(
        digest=digest,
        tokenizer_hash=tokenizer_hash(tokenizer),
        template_hash=template_hash(tokenizer, form.template, form.arguments) if form else None,
        template=form.template if form else None,
        template_arguments=dict(config.template_arguments),
        vocab_size=encoder.vocab_size,
        max_token_id=report.max_token_id,
        stop_ids=tuple(sorted(form.stop_ids)) if form else (),
        turns=config.turns,
        max_length=config.max_length,
        validation_share=0.0 if config.validation_input else config.validation_share,
        read=report.read,
        kept={split: report.kept[split] for split in SPLITS},
        skipped=dict(report.skipped),
        truncated=report.truncated,
        tokens={split: report.tokens[split] for split in SPLITS},
        supervised={split: report.supervised[split] for split in SPLITS},
        sources=tuple(
            SourceRecord(
                path=str(source.path), sha256=source.sha256(), rows=report.read_of[i], kept=report.kept_of[i]
            )
            for i, source in enumerate(sources)
        ),
    )
