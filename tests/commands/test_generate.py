import json
import re
import shutil
from types import SimpleNamespace

import pytest
from transformers import AutoTokenizer

from dflash_lightning.commands import generate_run
from dflash_lightning.commands.answer_stream import AnswerStream
from dflash_lightning.commands.generate import encode_prompt, main, make_parser
from dflash_lightning.decoding.decoded import Decoded
from dflash_lightning.decoding.plain import decode_plain
from dflash_lightning.decoding.sampling import Sampling
from dflash_lightning.evaluation.measure import WARM_UP_TOKENS
from tests.decoding.drafters import OracleDrafter, random_drafter


def asked_ids(target_folder, text, *extra):
    """Token ids of the prompt, as the options say."""
    words = ["--target", str(target_folder), "--prompt", text, *extra]
    return encode_prompt(make_parser().parse_args(words), AutoTokenizer.from_pretrained(target_folder))[0]


def run(target_folder, *extra):
    return main(["--target", str(target_folder), "--prompt", "t9 t8 t7", "--max-new-tokens", "12", *extra])


def test_text_streams_and_a_summary_follows(target_folder, drafter_folder, target, capsys):
    assert run(target_folder, "--drafter", str(drafter_folder), "--check") == 0
    printed = capsys.readouterr().out
    tokenizer = AutoTokenizer.from_pretrained(target_folder)
    expected = decode_plain(target, asked_ids(target_folder, "t9 t8 t7"), max_new_tokens=12, stop_ids=[1])
    assert printed.startswith(tokenizer.decode(expected.token_ids, skip_special_tokens=True))
    assert f"{len(expected.token_ids)} tokens in " in printed
    assert "acceptance length (tau) " in printed
    assert "check: equal to the target's own greedy text" in printed


def test_plain_needs_no_drafter(target_folder, capsys):
    assert run(target_folder, "--plain", "--raw") == 0
    assert "12 tokens in 11 rounds: acceptance length (tau) 1.00" in capsys.readouterr().out


def test_rounds_can_be_shown(target_folder, drafter_folder, capsys):
    assert run(target_folder, "--drafter", str(drafter_folder), "--show-rounds", "--block-size", "1") == 0
    assert capsys.readouterr().out.splitlines()[0].count("|") == 12


def test_a_prompt_is_a_user_turn_unless_raw(target_folder):
    assert asked_ids(target_folder, "t9 t8") == [2, 9, 8, 3, 4]
    assert asked_ids(target_folder, "t9 t8", "--raw") == [9, 8]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rope_theta": 5e5}, "made for another target: rope base 500000.0 against 10000.0 of this one"),
        ({"num_target_layers": 9, "vocab_size": 60}, "vocabulary 60 against 53, target layers 9 against 8"),
    ],
)
def test_a_drafter_of_another_target_is_refused(target_folder, altered, tmp_path, capsys, changes, message):
    assert run(target_folder, "--drafter", str(altered(tmp_path, **changes))) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ([], "give the --drafter to draft with, or --plain"),
        (["--drafter", "no/such/folder"], "no/such/folder has no config.json"),
        (["--plain", "--show-rejected"], "--show-rejected: about drafts, and --plain makes none; leave out"),
        (["--plain", "--check", "--tree", "8"], "--check, --tree: about drafts, and --plain makes none"),
        (["--plain", "--drafter", "x", "--block-size", "2"], "--drafter, --block-size: about drafts"),
        (["--plain", "--sampling", "rejection"], "--sampling: about drafts"),
        (["--plain", "--raw", "--chat-template", "x"], "--chat-template: about the chat template, and --raw"),
        (["--plain", "--raw", "--template-arguments", '{"a": 1}'], "--template-arguments: about the chat"),
        (
            ["--drafter", "x", "--tree", "8", "--show-rejected"],
            "--show-rejected shows what a chain of drafts",
        ),
        (["--drafter", "x", "--tree", "-1"], "--tree -1 counts the nodes of a tree: 0 or more"),
        (["--drafter", "x", "--sampling", "rejection"], "--sampling rejection draws tokens, but at --temp"),
        (
            ["--drafter", "x", "--sampling", "rejection", "--temperature", "1", "--tree", "8"],
            "--sampling rejection goes not with --tree, whose paths share drafts; take --sampling coupling",
        ),
        (["--plain", "--max-new-tokens", "0"], "--max-new-tokens 0 must be at least 1"),
        (["--drafter", "x", "--check", "--max-new-tokens", "-3"], "--max-new-tokens -3 must be at least 1"),
        (["--plain", "--device", "gpu"], "--device 'gpu' cannot be used here: Expected one of cpu, cuda"),
        (
            ["--plain", "--seed", str(1 << 64)],
            "--seed 18446744073709551616 must be at least 0 and below 2^63",
        ),
        (
            ["--plain", "--max-new-tokens", "510"],
            "has 6 tokens and its answer may have 510, but the target's",
        ),
        (
            ["--drafter", "x", "--check", "--sampling", "rejection", "--temperature", "1"],
            "--check compares with plain sampling from the same seed",
        ),
    ],
)
def test_mistakes_are_one_message(target_folder, capsys, extra, message):
    assert run(target_folder, *extra) == 1
    assert message in capsys.readouterr().err


def test_a_target_without_template_says_what_to_do(toy_target, capsys):
    assert run(toy_target, "--plain") == 1
    assert "as --chat-template FILE, or use --raw to continue plain text" in capsys.readouterr().err


def test_a_template_that_refuses_the_prompt_is_one_message(target_folder, tmp_path, capsys):
    (tmp_path / "t").write_text("{{ raise_exception('no system message') }}")
    assert run(target_folder, "--plain", "--chat-template", str(tmp_path / "t")) == 1
    told = capsys.readouterr().err
    assert "generate: the prompt cannot be asked: the template refuses the chat" in told
    assert "no system message" in told


def test_an_answer_of_one_token_has_no_acceptance_length(target_folder, drafter_folder, capsys):
    assert run(target_folder, "--drafter", str(drafter_folder), "--check", "--max-new-tokens", "1") == 0
    told = capsys.readouterr().out
    assert "1 token in 0 rounds: acceptance length (tau) -, 0% of the text drafted" in told
    assert "check: equal to the target's own greedy text" in told


@pytest.fixture
def passes(target, monkeypatch):
    """Counts passes of the target, and lets the clock show their number instead of seconds."""
    counted = SimpleNamespace(target=0, drafter=0, at_readings=[])

    def count(*_):
        counted.target += 1

    def read():
        counted.at_readings.append((counted.target, counted.drafter))
        return float(counted.target)

    monkeypatch.setattr(generate_run, "time", SimpleNamespace(perf_counter=read))
    hook = target.parts.layers[0].register_forward_pre_hook(count)
    yield counted
    hook.remove()


@pytest.mark.parametrize(
    ("words", "drafts"),
    [
        (["--plain"], False),
        (["--drafter", "d"], True),
        (["--drafter", "d", "--block-size", "1"], False),
        (["--drafter", "d", "--tree", "6"], True),
        (["--drafter", "d", "--temperature", "1", "--sampling", "rejection"], True),
    ],
)
@pytest.mark.parametrize("longest", [1, 2, 12])
def test_the_clock_starts_after_a_short_warm_up_by_the_same_method(
    target, passes, capsys, words, drafts, longest
):
    options = make_parser().parse_args(
        ["--target", "t", "--prompt", "x", *words, "--max-new-tokens", str(longest)]
    )
    drafter = None if options.plain else random_drafter(target)
    if drafter is not None:
        drafter.register_forward_pre_hook(lambda *_: setattr(passes, "drafter", passes.drafter + 1))
    sampling = Sampling(temperature=1.0, method="rejection") if options.temperature else None
    decoder = generate_run.Decoder(options, target, [9, 8, 7], frozenset(), sampling)
    run = decoder.run(drafter, AnswerStream(Numbers()))

    (warm, warm_drafts), (last, _) = passes.at_readings
    assert 1 <= warm <= min(WARM_UP_TOKENS, longest)
    assert (warm_drafts > 0) == (drafts and longest > 1)
    assert run.seconds == last - warm == 1 + len(run.decoded.rounds)  # no pass of the warm-up, nor one less
    assert capsys.readouterr().out == Numbers().decode(run.decoded.token_ids)  # nothing of the warm-up
    assert len(run.decoded.token_ids) == longest


@pytest.mark.parametrize(
    ("decoded", "said"),
    [
        (Decoded((5,), ()), "1 token in 0 rounds: acceptance length (tau) -, 0% of the text drafted"),
        (Decoded((5,) * 4, (1, 1, 1)), "4 tokens in 3 rounds: acceptance length (tau) 1.00, 0% of"),
        (Decoded((5,) * 4, (2, 1)), "4 tokens in 2 rounds: acceptance length (tau) 1.50, 25% of"),
        (Decoded((5,) * 4, (2, 1), ended_by_draft=True), "(tau) 1.50, 50% of the text drafted"),
        (Decoded((5,) * 4, (3,), ended_by_draft=True), "(tau) 3.00, 75% of the text drafted"),
    ],
)
def test_the_summary_counts_what_was_drafted(decoded, said):
    assert said in generate_run.Run(decoded, 1.0).summary()


@pytest.mark.parametrize("words", [[], ["--tree", "6"]])
def test_a_drafted_stop_leaves_no_draft_behind_it_to_reject(target, capsys, words):
    prompt = [9, 8, 7]
    text = decode_plain(target, prompt, max_new_tokens=12).token_ids
    assert text[2] not in text[:2]  # else the stop would fall elsewhere
    options = make_parser().parse_args(["--target", "t", "--prompt", "x", "--drafter", "d", *words])
    stream = AnswerStream(Numbers(), colour="always", show_rejected=True, show_rounds=True)
    run = generate_run.Decoder(options, target, prompt, {text[2]}, None).run(
        OracleDrafter(target, [*prompt, *text]), stream
    )
    assert run.decoded == Decoded(text[:3], (2,), ended_by_draft=True)
    first, drafted = Numbers().decode(text[:1]), Numbers().decode(text[1:3])
    assert capsys.readouterr().out == f"{first}|\033[32m{drafted}\033[0m|"


class Numbers:
    """A tokenizer whose tokens are shown as their numbers."""

    def decode(self, ids, skip_special_tokens=True):
        return "".join(f"{token} " for token in ids)


def test_both_runs_of_a_check_are_warm(target_folder, drafter_folder, monkeypatch, capsys):
    warm = []

    class Counting(generate_run.Decoder):
        def _decoded(self, drafter, stream, *, max_new_tokens):
            warm.append((drafter is None, stream is None, max_new_tokens))
            return super()._decoded(drafter, stream, max_new_tokens=max_new_tokens)

    monkeypatch.setattr("dflash_lightning.commands.generate.Decoder", Counting)
    assert run(target_folder, "--drafter", str(drafter_folder), "--check") == 0
    assert "times the speed of plain decoding" in capsys.readouterr().out
    short = WARM_UP_TOKENS
    assert warm == [(False, True, short), (False, False, 12), (True, True, short), (True, True, 12)]


def test_an_answer_in_colours_is_the_same_answer(target_folder, drafter_folder, capsys):
    extra = ["--drafter", str(drafter_folder), "--raw", "--color"]
    texts = []
    for colour in ("never", "always"):
        assert run(target_folder, *extra, colour) == 0
        texts.append(re.sub("\033[^m]*m", "", capsys.readouterr().out.splitlines()[0]))
    assert texts[0] == texts[1] != ""


@pytest.mark.parametrize(
    "extra", [["--tree", "6"], ["--temperature", "0.8"], ["--tree", "6", "--top-k", "9"]]
)
def test_trees_and_luck_keep_the_targets_own_text(target_folder, drafter_folder, capsys, extra):
    if "--top-k" in extra:
        extra = [*extra, "--temperature", "0.8", "--seed", "3"]
    assert run(target_folder, "--drafter", str(drafter_folder), "--check", *extra) == 0
    printed = capsys.readouterr().out
    assert "check: equal to the target's own" in printed
    assert "% of the text drafted, " in printed


def test_every_end_that_the_target_knows_ends_the_answer(target_folder, tmp_path, capsys):
    """From the same sources as `prepare`: the generation config's list beside the tokenizer's eos."""
    assert run(target_folder, "--plain", "--raw") == 0
    folder = shutil.copytree(target_folder, tmp_path / "target")
    third = AutoTokenizer.from_pretrained(folder)(capsys.readouterr().out.splitlines()[0]).input_ids[2]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [1, third]}))
    assert run(folder, "--plain", "--raw") == 0
    assert "3 tokens in 2 rounds" in capsys.readouterr().out
