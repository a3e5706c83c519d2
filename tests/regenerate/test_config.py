import pytest

from dflash_lightning.regenerate.config import RegenerateConfig, ServerSettings


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input": ()}, "no input: name at least one file"),
        ({"output": "b"}, "output b must end in one of .jsonl"),
        ({"max_new_tokens": 0}, "max_new_tokens must be above 0, got 0"),
        ({"temperature": -1.0}, "temperature divides the logits and is at least 0, got -1.0"),
        ({"temperature": float("nan")}, "temperature divides the logits"),
        ({"top_k": -1}, "top_k counts tokens, 0 for all, got -1"),
        ({"top_p": 0.0}, "top_p is a share above 0 and at most 1, got 0.0"),
        ({"max_failed": 1.0}, "max_failed must be at least 0 and below 1, got 1.0"),
    ],
)
def test_nonsense_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        RegenerateConfig(**{"input": ("a.jsonl",), "output": "b.jsonl", **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"urls": ("localhost:8000",)},
            "server 'localhost:8000' is no address such as http://localhost:8000",
        ),
        ({"concurrency": 0}, "concurrency must be above 0, got 0"),
        ({"timeout_s": 0.0}, "timeout_s must be above 0"),
        ({"attempts": 0}, "attempts must be above 0"),
    ],
)
def test_a_server_that_cannot_be_asked_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        ServerSettings(**{"urls": ("http://h",), **changes})


def test_a_login_in_the_address_is_refused_without_repeating_it():
    with pytest.raises(ValueError, match="holds a login") as caught:
        ServerSettings(urls=("http://me:secret@h",))
    assert "secret" not in str(caught.value)


def test_addresses_may_end_as_they_like():
    urls = ("http://h:1", "http://h:1/", "http://h:1/v1", "https://h/api/v1/")
    assert ServerSettings(urls=urls).bases == [*["http://h:1/v1"] * 3, "https://h/api/v1"]


def test_how_answers_are_got_is_no_part_of_what_they_are():
    one = RegenerateConfig(input=("a.jsonl",), output="b.jsonl")
    two = RegenerateConfig(input=("c.jsonl",), output="d.jsonl", max_failed=0.5, retry_failed=True)
    assert one.identity == two.identity
    assert one.identity != RegenerateConfig(input=("a.jsonl",), output="b.jsonl", seed=1).identity
