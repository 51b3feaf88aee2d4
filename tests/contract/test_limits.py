"""docs/reference/limits.md has every limit that can be set, and says what happens at it."""

import ast
import re
from pathlib import Path

import pytest
from msgspec.structs import fields

import turnwire
from docs.reference.limit_groups import LIMITS_KEYS
from docs.reference.limits import limits, ungrouped_keys
from turnwire.config.configuration import SHOWN_SECTIONS, shown_limits
from turnwire.config.sections import SECTIONS
from turnwire.domain.limits import Limits
from turnwire.domain.money import PicoUsd

CODE = Path(turnwire.__file__).parent


@pytest.mark.slow
def test_every_number_of_the_configuration_is_in_a_group() -> None:
    """A key needs a comment above it in `Limits`, or a group, and a word on what happens at it: limit_groups.py."""
    assert ungrouped_keys() == []


def test_no_group_names_a_limit_that_is_gone() -> None:
    """Each key of `LIMITS_KEYS` is one of `Limits`."""
    assert [key for key in LIMITS_KEYS if key not in {field.encode_name for field in fields(Limits)}] == []


@pytest.mark.slow
def test_a_limit_has_one_row() -> None:
    """With its key, value and outcome; no cell is empty."""
    rows = [row.split(" | ") for row in re.findall(r"^\| (\**`[\w.]+`.*) \|$", limits(), re.MULTILINE)]
    tables = [row for row in rows if len(row) == 3]
    names = [row[0] for row in tables]
    assert len(names) == len({*names}) > 60
    assert [row for row in tables if not all(row)] == []


def test_bold_keys_are_those_that_the_server_answers() -> None:
    """By their own keys; a time that is no whole number of seconds is answered in milliseconds."""
    bold = {*re.findall(r"^\| \*\*`([\w.]+)`\*\* ", limits(), re.MULTILINE)}
    shown = shown_limits({name: SECTIONS[name]() for name in SHOWN_SECTIONS})
    assert bold == {key.replace("_milliseconds", "_seconds") for key in shown}
    assert {"limits.max_message_bytes", "limits.question_timeout_seconds", "files.max_uploads"} <= bold


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
