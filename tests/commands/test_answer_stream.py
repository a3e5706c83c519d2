"""The answer as it comes: characters are whole, and colours say who wrote what."""

import re

import pytest

from dflash_lightning.commands.answer_stream import AnswerStream, wants_colour
from tests.data import chats


class Bytes:
    """A tokenizer whose tokens are bytes: a character may arrive in two rounds."""

    def decode(self, ids, skip_special_tokens):
        return bytes(ids).decode(errors="replace")


def test_half_a_character_waits_for_its_other_half(capsys):
    stream = AnswerStream(Bytes())
    first, second = "é".encode()
    for tokens in ([97, first], [second], [98]):
        stream.write(tokens, len(tokens) - 1)
    assert capsys.readouterr().out == "aéb"


@pytest.mark.parametrize("colour", ["never", "always"])
@pytest.mark.parametrize("per_round", [1, 2, 3, 5, 100])
def test_wherever_the_limit_cuts_the_answer_all_of_it_is_shown(capsys, colour, per_round):
    tokenizer = chats.tokenizer()  # a token per byte
    whole = tokenizer.encode("Hello w\u00f6rld \ufffd \u4f60\U0001f642", add_special_tokens=False)
    for length in range(len(whole) + 1):
        stream = AnswerStream(tokenizer, colour=colour)
        for start in range(0, length, per_round):
            tokens = whole[start : min(start + per_round, length)]
            stream.write(tokens, len(tokens) - 1)
        stream.close()
        shown = re.sub("\033[^m]*m", "", capsys.readouterr().out)
        assert shown == tokenizer.decode(whole[:length])


def test_what_stands_before_half_a_character_does_not_wait(capsys):
    tokenizer = chats.tokenizer()
    stream = AnswerStream(tokenizer)
    stream.write(tokenizer.encode("Hello w\u00f6")[:-1], 0)
    assert capsys.readouterr().out == "Hello w"
    stream.close()
    assert capsys.readouterr().out == "\ufffd"


def test_drafts_that_stood_are_green_and_lost_ones_struck_through(capsys):
    stream = AnswerStream(Bytes(), colour="always", show_rejected=True)
    stream.write(b"a", 0)  # the prefill's
    stream.drafted(b"bcd")
    stream.write(b"bx", 1)
    stream.drafted(b"yz")
    stream.write(b"yz!", 2)
    assert capsys.readouterr().out == "a\033[32mb\033[0m\033[31;9mcd\033[0mx\033[32myz\033[0m!"


@pytest.mark.parametrize(
    ("drafts", "tokens", "drafted", "shown"),
    [
        (b"bcd", b"bx", 1, "b[-cd-]x"),
        (b"bcd", b"x", 0, "[-bcd-]x"),
        (b"bcd", b"bcdx", 3, "bcdx"),
        (b"bcd", b"b", 1, "b"),  # b is a stop: nobody judged c and d
        (b"bcd", b"bc", 2, "bc"),
        (b"bcd", b"bcd", 3, "bcd"),
        (b"", b"x", 0, "x"),
    ],
)
@pytest.mark.parametrize("colour", ["never", "always"])
def test_drafts_are_lost_where_the_target_judged_otherwise(capsys, colour, drafts, tokens, drafted, shown):
    stream = AnswerStream(Bytes(), colour=colour, show_rejected=True)
    stream.drafted(drafts)
    stream.write(tokens, drafted)
    printed = capsys.readouterr().out
    if colour == "never":
        assert printed == shown
    else:
        stood, lost = tokens[:drafted].decode(), re.findall(r"\[-(.*)-\]", shown)
        wanted = [f"\033[32m{stood}\033[0m"] * bool(stood) + [f"\033[31;9m{text}\033[0m" for text in lost]
        assert printed == "".join(wanted) + tokens[drafted:].decode()


@pytest.mark.parametrize(
    ("choice", "is_terminal", "environment", "wanted"),
    [
        ("auto", True, {"TERM": "xterm"}, True),
        ("auto", False, {"TERM": "xterm"}, False),
        ("auto", True, {"NO_COLOR": "1"}, False),
        ("auto", True, {"NO_COLOR": ""}, True),  # an empty one does not count, says no-color.org
        ("auto", True, {"TERM": "dumb"}, False),
        ("always", False, {"NO_COLOR": "1"}, True),
        ("never", True, {}, False),
    ],
)
def test_colours_are_for_terminals(choice, is_terminal, environment, wanted):
    assert wants_colour(choice, is_terminal=is_terminal, environment=environment) is wanted
