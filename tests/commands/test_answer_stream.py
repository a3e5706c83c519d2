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
        stream.write(tokens)
    assert capsys.readouterr().out == "aéb"


@pytest.mark.parametrize("colour", ["never", "always"])
@pytest.mark.parametrize("per_round", [1, 2, 3, 5, 100])
def test_wherever_the_limit_cuts_the_answer_all_of_it_is_shown(capsys, colour, per_round):
    tokenizer = chats.tokenizer()  # a token per byte
    whole = tokenizer.encode("Hello w\u00f6rld \ufffd \u4f60\U0001f642", add_special_tokens=False)
    for length in range(len(whole) + 1):
        stream = AnswerStream(tokenizer, colour=colour)
        for start in range(0, length, per_round):
            stream.write(whole[start : min(start + per_round, length)])
        stream.close()
        shown = re.sub("\033[^m]*m", "", capsys.readouterr().out)
        assert shown == tokenizer.decode(whole[:length])


def test_what_stands_before_half_a_character_does_not_wait(capsys):
    tokenizer = chats.tokenizer()
    stream = AnswerStream(tokenizer)
    stream.write(tokenizer.encode("Hello w\u00f6")[:-1])
    assert capsys.readouterr().out == "Hello w"
    stream.close()
    assert capsys.readouterr().out == "\ufffd"


def test_drafts_that_stood_are_green_and_lost_ones_struck_through(capsys):
    stream = AnswerStream(Bytes(), colour="always", show_rejected=True)
    stream.write(b"a")  # the prefill's
    stream.drafted(b"bcd")
    stream.write(b"bx")
    stream.drafted(b"yz")
    stream.write(b"yz!")
    assert capsys.readouterr().out == "a\033[32mb\033[0m\033[31;9mcd\033[0mx\033[32myz\033[0m!"


def test_without_colours_lost_drafts_stand_in_brackets(capsys):
    stream = AnswerStream(Bytes(), show_rejected=True)
    stream.drafted(b"bcd")
    stream.write(b"bx")
    assert capsys.readouterr().out == "b[-cd-]x"


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
