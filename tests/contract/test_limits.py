"""Refusals name the limit, and the server answers those that can be set."""

import ast
from pathlib import Path

import pytest

import turnwire
from turnwire.config.configuration import shown_limits
from turnwire.domain.limits import Limits
from turnwire.domain.money import PicoUsd

CODE = Path(turnwire.__file__).parent


def test_every_refusal_of_too_much_tells_the_limit() -> None:
    """As `limitValue` of the metadata: whoever refuses a field as too long, too large or too many gives it."""
    silent = []
    for file in sorted(CODE.rglob("*.py")):
        text = file.read_text("utf-8")
        for call in ast.walk(ast.parse(text)) if '"TOO_' in text else ():
            if not isinstance(call, ast.Call):
                continue
            says = [getattr(argument, "value", None) for argument in call.args]
            told = len(call.args) > 3 or any(keyword.arg in (None, "limitValue") for keyword in call.keywords)
            if {"TOO_LONG", "TOO_LARGE", "TOO_MANY"} & {word for word in says if isinstance(word, str)} and not told:
                silent.append(f"{file.relative_to(CODE)}:{call.lineno}")
    assert silent == []


@pytest.mark.parametrize(
    ("seconds", "key", "shown"),
    [
        (600.0, "limits.client_tool_timeout_seconds", 600),
        (0.25, "limits.client_tool_timeout_milliseconds", 250),
        (1.5, "limits.client_tool_timeout_milliseconds", 1500),
    ],
)
def test_times_are_answered_as_whole_numbers(seconds: float, key: str, shown: int) -> None:
    """Under one key: in seconds if these are whole, else in milliseconds. Money is not answered."""
    found = shown_limits(
        {"limits": Limits(client_tool_timeout_seconds=seconds, max_turn_cost_pico_usd=PicoUsd(10**12))}
    )
    assert {name: value for name, value in found.items() if "client_tool" in name} == {key: shown}
    assert not any(name.endswith("usd") for name in found)
