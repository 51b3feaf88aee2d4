"""What a person types for a form, as values."""

import sys
from typing import Any

import pytest

from turnwire.cli.chat.asking import NOBODY, _choices, _decision, _filled, _value

DRINKS: dict[str, Any] = {"enum": ["tea", "7"], "enumNames": ["Tea", "Seven"]}
SIZES: dict[str, Any] = {"items": {"anyOf": [{"const": "s", "title": "Small"}, {"const": "l"}]}}


class Input:
    """A terminal at which lines are typed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
        """Takes the lines; then the input ends."""
        self._lines = list(lines)
        monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
        monkeypatch.setattr("turnwire.cli.chat.asking.typed", self._typed)
        monkeypatch.setattr("termios.tcflush", lambda *_: None)

    def _typed(self, _prompt: str) -> str:
        if not self._lines:
            raise EOFError
        return self._lines.pop(0)


@pytest.mark.parametrize(
    ("kind", "field", "typed", "value"),
    [
        ("string", {}, " as it is ", " as it is "),
        ("string", DRINKS, "tea", "tea"),
        ("string", DRINKS, "Seven", "7"),
        ("string", DRINKS, "7", "7"),
        ("string", DRINKS, "1", "tea"),
        ("array", SIZES, "Small, 2", ["s", "l"]),
        ("boolean", {}, "No", False),
        ("integer", {}, "-3", -3),
        ("number", {}, "2.5", 2.5),
    ],
)
def test_values(kind: str, field: dict[str, Any], typed: str, value: object) -> None:
    """Choices are named by value, title or number."""
    assert _value(kind, _choices(field), typed) == value


@pytest.mark.parametrize(
    ("kind", "field", "typed"),
    [("string", DRINKS, "3"), ("string", DRINKS, "0"), ("integer", {}, "2.5"), ("boolean", {}, "perhaps")],
)
def test_what_is_no_value(kind: str, field: dict[str, Any], typed: str) -> None:
    """It is asked for again."""
    with pytest.raises((ValueError, KeyError)):
        _value(kind, _choices(field), typed)


def test_enter_takes_the_default_or_leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was typed before counts as the default; a required field has to have a value."""
    properties = {name: {"type": "string"} for name in ("left", "held", "needed")}
    schema = {"properties": {**properties, "given": {"type": "integer", "default": 3}}, "required": ["needed"]}
    Input(monkeypatch, "", "", "", "x", "")
    assert _filled(schema, {"held": "h"}, lambda _: None) == {"held": "h", "needed": "x", "given": 3}


@pytest.mark.parametrize(
    ("lines", "whole", "decision"),
    [
        (["perhaps", "a", "y"], "all", ("yes", "")),
        (["?", "A"], "all", ("always", "")),
        (["A", "?", "n: use the other"], "", ("no", "use the other")),
        ([], "all", ("no", "")),
    ],
)
def test_decisions(lines: list[str], whole: str, decision: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Other text asks again; only a permission can be given always, and shown whole."""
    Input(monkeypatch, *lines)
    said: list[str] = []
    assert _decision("", said.append, whole) == decision
    assert said == (["all"] if "?" in lines and whole else [])


def test_nobody_decides_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model reads why not."""
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)
    assert _decision("", lambda _: None) == ("no", NOBODY)
