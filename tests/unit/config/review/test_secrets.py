"""Texts that look like secrets, or are some in the environment, are masked; everything else stays."""

import pytest

from turnwire.config.review.secrets import Masking

MASKING = Masking({"PROVIDER_KEY": "hunter-22", "HOME": "/home/someone", "SHORT_KEY": "abc"})


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://me:pass@host/v1", "https://***@host/v1"),
        ("https://host/v1?key=abc&x=1#part", "https://host/v1?***"),
        ("https://host/v1?SECRET", "https://host/v1?***"),
        ("https://host?a=b;SECRET&SECRET", "https://host?***"),
        ("https://host/v1#SECRET", "https://host/v1#***"),
        ("https://host/v1?a='SECRET'", "https://host/v1?***"),
        ("https://host/v1?#", "https://host/v1?***"),
        ("https://host/v1? and", "https://host/v1? and"),
        ("https://user:p@SECRET@h/mcp", "https://***@h/mcp"),
        ("https://user:p/SECRET@h/mcp", "https://***/***/mcp"),
        ("https://user:p?SECRET@h/mcp", "https://***?***"),
        ("https://user:p#SECRET@h/mcp", "https://***#***"),
        ("https://h/v1?mail=a@SECRET", "https://***/v1?***"),
        ("'https://h/v1' and https://user@h2", "'https://h/v1' and https://***@h2"),
        ("use hunter-22 there", "use *** there"),
        ("sk-proj-abcdefghij123", "***"),
        ("Bearer abc.def", "Bearer ***"),
        ("/home/someone/turnwire.db", "/home/someone/turnwire.db"),
        ("https://host/v1", "https://host/v1"),
        ("https://host:1/s/tok-1/mcp/?a=b", "https://host:1/***/***/mcp/?***"),
        ("is https://host/hooks/tok-1, not more", "is https://host/***/*** not more"),
        ("see http://[::1]:8000/v1beta/openai", "see http://[::1]:8000/v1beta/openai"),
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
        (["-y", "--port", "80", "--no-auth"], ["-y", "--port", "80", "--no-auth"]),
        (["-y", "@scope/server-files@1.2", "."], ["-y", "@scope/server-files@1.2", "."]),
        (["--api-key", "abc", "x"], ["--api-key", "***", "***"]),
        (["--token=abc", "--mode=abc", "--a=b\nc"], ["--token=***", "--mode=***", "--a=***"]),
        (["-H", "Authorization: Bearer abc"], ["-H", "***"]),
        (["--header=Authorization: Bearer abc"], ["--header=***"]),
        (["-pabc", "-p=abc", "-Habc", "--Token-Abc", "--abc123"], ["***"] * 5),
        (["PASSWORD=abc", "mcp", "abc", "123456"], ["***"] * 4),
        (["https://me:abc@host/mcp/abc?k=abc", "https://host"], ["https://***@host/mcp/***?***", "https://host"]),
        (["x https://host/abc", "postgres://me:abc@host/db", "@abc/d1"], ["***"] * 3),
        (["-", "--", ""], ["-", "--", "***"]),
    ],
)
def test_arguments(given: list[str], shown: list[str]) -> None:
    """Arguments that are known to be harmless are shown, whatever stands before them."""
    assert MASKING.value("mcp.x.args", given) == shown


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("npx", "npx"),
        ("/opt/tools/server-1", "/opt/tools/server-1"),
        ("npx --token SECRET", "npx ***"),
        (" npx\tSECRET", "npx ***"),
        ("https://me:abc@host/x SECRET", "https://***@host/*** ***"),
    ],
)
def test_commands(command: str, shown: str) -> None:
    """Arguments that were written behind the program, where they have no effect, are masked whole."""
    assert MASKING.value("mcp.x", {"command": command}) == {"command": shown}


def test_names_of_variables_are_shown_if_they_are_set_or_look_like_names() -> None:
    """Others may be keys that were pasted where a name belongs."""
    for name in ("OPENAI_API_KEY", "S3_KEY", "AUTH0_TOKEN", "KEY_2", "_KEY", ""):
        assert MASKING.variable(name) == name
    for key in ("AKIAIOSFODNN7EXAMPLE", "ABCDEF0123456789", "A1B2C3D4"):
        assert MASKING.variable(key) == "***"
    assert Masking({"A1B2C3": "x", "lower": "y"}).value("x.env", ["A1B2C3", "lower"]) == ["A1B2C3", "lower"]
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
