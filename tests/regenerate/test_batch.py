"""Batches change nothing: each answer is that of plain decoding, alone."""

import pytest
import torch

from dflash_lightning.data.template import ChatFormat, probe_format
from dflash_lightning.decoding.plain import decode_plain
from dflash_lightning.decoding.sampling import Sampling
from dflash_lightning.regenerate.batch import answer_batch
from dflash_lightning.regenerate.chats import open_chat
from dflash_lightning.regenerate.config import RegenerateConfig
from dflash_lightning.regenerate.local import LocalTarget
from dflash_lightning.target.loading import Target
from tests.data.chats import row
from tests.regenerate.toy_chat import TEMPLATE, WORDS, chat_tokenizer
from tests.slow import slow
from tests.toy import toy_model

STOPS = {1, 7, 30}
LIMIT = 20
SAMPLINGS = [None, Sampling(temperature=0.8), Sampling(temperature=1.5, top_k=9, top_p=0.9)]


@pytest.fixture(scope="module")
def target():
    return Target(toy_model())


@pytest.fixture(scope="module")
def form():
    return probe_format(ChatFormat(tokenizer=chat_tokenizer(), template=TEMPLATE, stop_ids=frozenset(STOPS)))


def prompts(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 12, (count,), generator=generator).tolist()
    return [torch.randint(2, 52, (n,), generator=generator).tolist() for n in lengths]


def plain(target, prompt, limit, sampling, seed):
    if sampling is not None:
        sampling = Sampling(
            temperature=sampling.temperature, top_k=sampling.top_k, top_p=sampling.top_p, seed=seed
        )
    decoded = decode_plain(target, prompt, max_new_tokens=limit, stop_ids=STOPS, sampling=sampling)
    return list(decoded.token_ids)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_every_answer_of_a_batch_is_that_of_plain_decoding(target, sampling):
    asked = prompts(7)
    limits, seeds = [1, 2, LIMIT, LIMIT, LIMIT, 5, LIMIT], list(range(7))
    counted = []
    answers = answer_batch(
        target,
        asked,
        limits=limits,
        stop_ids=STOPS,
        sampling=sampling,
        seeds=seeds,
        on_tokens=counted.append,
    )
    alone = zip(asked, limits, seeds, strict=True)
    assert answers == [plain(target, prompt, limit, sampling, seed) for prompt, limit, seed in alone]
    assert sum(counted) == sum(map(len, answers))
    assert any(ids[-1] in STOPS for ids in answers)
    assert any(len(ids) == LIMIT for ids in answers)  # so both ways to end were met


def test_a_seed_of_its_own_decides_each_answer(target):
    def drawn(seeds):
        return answer_batch(
            target, [[5, 6]] * 3, limits=[9] * 3, stop_ids=(), sampling=SAMPLINGS[1], seeds=seeds
        )

    one, two, three = drawn([1, 2, 1])
    assert one == three != two


def test_an_empty_prompt_is_refused(target):
    with pytest.raises(ValueError, match="the prompt is empty"):
        answer_batch(target, [[3], []], limits=[1, 1], stop_ids=())


def chats(count):
    words = [" ".join(WORDS[i] for i in prompt) for prompt in prompts(2 * count)]
    return [
        open_chat(row(*texts), number=n, place=f"f:{n}", turns="all", truncated="keep")
        for n in range(count)
        for texts in [(words[2 * n], "", words[2 * n + 1], "")[: 2 if n % 3 else 4]]
    ]


def answered(target, form, given, *, temperature=0.7, **options):
    config = RegenerateConfig(
        input=("x",),
        output="x.jsonl",
        max_new_tokens=LIMIT,
        temperature=temperature,
        seed=3,
        truncated="keep",
    )
    backend = LocalTarget(target, form, config, **options)
    done = list(backend.answer_all(iter(given)))
    assert len(done) == len(given)
    return {chat.row: chat.record() for chat in done}


@pytest.mark.parametrize("temperature", [0.7, *slow(0.0)])
def test_batches_windows_and_stops_change_no_answer(target, form, temperature):
    alone = answered(target, form, chats(11), batch_size=1, temperature=temperature)
    assert alone == answered(target, form, chats(11), batch_size=4, temperature=temperature)
    rest = answered(target, form, chats(11)[6:], batch_size=3, temperature=temperature)  # as after a stop
    assert rest == {n: alone[n] for n in range(6, 11)}
    assert {record.answers for record in alone.values()} == {1, 2}


def test_a_batch_that_does_not_fit_is_halved(form):
    model = toy_model()
    whole = answered(Target(model), form, chats(9), batch_size=8)

    def short_of_memory(_module, arguments, options):
        if len(options["input_ids"]) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory.\nMore of it.")

    target = Target(model)
    target.parts.body.register_forward_pre_hook(short_of_memory, with_kwargs=True)
    assert answered(target, form, chats(9), batch_size=8) == whole


def test_a_row_that_does_not_fit_alone_fails_alone(form):
    target = Target(toy_model())

    def short_of_memory(_module, arguments, options):
        if options["input_ids"].shape[1] > 12:
            raise torch.OutOfMemoryError("CUDA out of memory.\nMore of it.")

    target.parts.body.register_forward_pre_hook(short_of_memory, with_kwargs=True)
    long = open_chat(row("t09 " * 20, ""), number=0, place="f:0", turns="all")
    short = open_chat(row("t09", ""), number=1, place="f:1", turns="all", truncated="keep")
    records = answered(target, form, [long, short], batch_size=2)
    assert (records[0].status, records[0].detail) == ("failed", "CUDA out of memory.")
    assert records[1].chat is not None


def test_prompts_that_do_not_fit_the_context_are_skipped_and_answers_end_with_it(target, form):
    context = target.config.max_position_embeddings
    given = [
        open_chat(row("t09 " * words, ""), number=words, place="", turns="all", truncated="keep")
        for words in (context, context - 3 - 5)
    ]
    records = answered(target, form, given)
    too_long, tight = records[context], records[context - 8]
    assert too_long.reason == "the prompt is longer than the target's context"
    assert too_long.detail == f"{context + 3} tokens, context {context}"
    assert tight.tokens <= 5


def test_what_the_template_refuses_is_skipped_with_its_words(target, form):
    refuses = probe_format(
        ChatFormat(
            tokenizer=form.tokenizer,
            template="{% if messages|length > 2 %}{{ raise_exception('one turn') }}{% endif %}" + TEMPLATE,
            stop_ids=form.stop_ids,
        )
    )
    chat = open_chat(row("t04", "", "t05", ""), number=0, place="", turns="all", truncated="keep")
    record = answered(target, refuses, [chat])[0]
    assert (record.status, record.answers) == ("skipped", 1)
    assert record.reason == "the template refuses the chat"
    assert "one turn" in record.detail


def test_a_batch_holds_someone(target, form):
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        answered(target, form, [], batch_size=0)
