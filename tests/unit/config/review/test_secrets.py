"""What looks like a secret, or is one in the environment, is masked; everything else stays."""

import pytest

from turnwire.config.review.secrets import Masking

MASKING = Masking({"PROVIDER_KEY": "hunter-22", "HOME": "/home/someone", "SHORT_KEY": "abc"})


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://me:pass@host/v1", "https://***@host/v1"),
        ("https://host/v1?key=abc&x=1#part", "https://host/v1?key=***&x=***#part"),
        ("use hunter-22 there", "use *** there"),
        ("sk-proj-abcdefghij123", "***"),
        ("Bearer abc.def", "Bearer ***"),
        ("/home/someone/turnwire.db", "/home/someone/turnwire.db"),
        ("https://host/v1", "https://host/v1"),
        ("What is 1+1? a=b", "What is 1+1? a=b"),
        ("abc", "abc"),
    ],
)
def test_texts(text: str, shown: str) -> None:
    """As they are shown."""
    assert MASKING.text(text) == shown


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (["-y", "server", "--port", "80"], ["-y", "server", "--port", "80"]),
        (["--api-key", "abc", "x"], ["--api-key", "***", "x"]),
        (["--token=abc", "x"], ["--token=***", "x"]),
        (["--header", "Authorization: abc"], ["--header", "Authorization: ***"]),
        (["--no-auth", "--verbose"], ["--no-auth", "--verbose"]),
        (["PASSWORD=abc"], ["PASSWORD=***"]),
    ],
)
def test_arguments(given: list[str], shown: list[str]) -> None:
    """The value after an option, or in it."""
    assert MASKING.value("mcp.x.args", given) == shown


def test_names_of_variables_are_shown_in_capitals_alone() -> None:
    """Others may be keys that were pasted where a name belongs."""
    assert MASKING.value("x.api_key_env", "OPENAI_API_KEY") == "OPENAI_API_KEY"
    assert MASKING.value("x.api_key_env", "abcdef0123456789") == "***"
    assert MASKING.value("x.env", ["HOME", "a1b2"]) == ["HOME", "***"]
    assert MASKING.value("x.headers_env", {"Authorization": "TOKEN", "X": "a1b2"}) == {
        "Authorization": "TOKEN",
        "X": "***",
    }


def test_other_values_stay() -> None:
    """Numbers, lists and tables are masked inside."""
    assert MASKING.value("a", {"n": 1, "list": ["hunter-22", True], "none": None}) == {
        "n": 1,
        "list": ["***", True],
        "none": None,
    }


def test_values_of_named_variables_are_secrets() -> None:
    """Whatever the variable's name is."""
    assert Masking({"PLAIN": "some-value"}).text("some-value") == "some-value"
    assert Masking({"PLAIN": "some-value"}, frozenset({"PLAIN"})).text("some-value") == "***"
