"""Type hints as JSON Schemas, and JSON as values of types."""

import enum
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import pytest

from turnwire_client import tool_of
from turnwire_client.tools.schemas import schema_of, value_of


class Unit(enum.Enum):
    """A unit."""

    CELSIUS = "C"
    FAHRENHEIT = "F"


@dataclass
class Point:
    """A place."""

    x: float
    y: Annotated[float, "upwards"] = 0.0
    names: list[str] = field(default_factory=list)


class Options(TypedDict):
    """Some options."""

    deep: bool
    limit: NotRequired[int]


@dataclass
class Endless:
    """Holds itself."""

    next: "Endless | None" = None


POINT = {
    "type": "object",
    "properties": {
        "x": {"type": "number"},
        "y": {"type": "number", "description": "upwards"},
        "names": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["x"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (str, {"type": "string"}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (Annotated[bool, "whether"], {"type": "boolean", "description": "whether"}),
        (Literal["a", 1], {"enum": ["a", 1]}),
        (Unit, {"enum": ["C", "F"]}),
        (Sequence[float], {"type": "array", "items": {"type": "number"}}),
        (list, {"type": "array"}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (Any, {}),
        (Point, POINT),
        (
            Options,
            {
                "type": "object",
                "properties": {"deep": {"type": "boolean"}, "limit": {"type": "integer"}},
                "required": ["deep"],
                "additionalProperties": False,
            },
        ),
    ],
)
def test_types_have_schemas(hint: Any, schema: dict[str, Any]) -> None:
    """As a model reads them."""
    assert schema_of(hint, "x") == schema


@pytest.mark.parametrize(
    ("hint", "value", "expected"),
    [
        (int, 3.0, 3),
        (float, 3, 3.0),
        (Unit, "F", Unit.FAHRENHEIT),
        (Point, {"x": 1}, Point(1.0)),
        (list[Point], [{"x": 1, "y": 2, "names": ["a"]}], [Point(1.0, 2.0, ["a"])]),
        (dict[str, Unit], {"now": "C"}, {"now": Unit.CELSIUS}),
        (int | str, "x", "x"),
        (Point | None, None, None),
        (Options, {"deep": True}, {"deep": True}),
        (Literal["a", 1], 1, 1),
        (Any, {"a": [1]}, {"a": [1]}),
    ],
)
def test_values_come_as_their_types(hint: Any, value: Any, expected: Any) -> None:
    """Also within others."""
    converted = value_of(hint, value, "x")
    assert (converted, type(converted)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("hint", "value", "problem"),
    [
        (int, True, "x is not int: 'True'"),
        (int, 1.5, "x is not int: '1.5'"),
        (int, float("inf"), "x is not int: 'inf'"),
        (Point, {"x": "1"}, "x.x is not float: '1'"),
        (Point, {}, "x lacks 'x'"),
        (Point, {"x": 1, "z": 2}, "x has no 'z'"),
        (Options, {"limit": 1}, "x lacks 'deep'"),
        (list[int], [1, "2"], r"x\[1\] is not int: '2'"),
        (Unit, "K", "x is not Unit: 'K'"),
        (Literal[1], True, "x is not Literal: 'True'"),
        (int | None, "1", "x is not int: '1'; or x is not NoneType: '1'"),
    ],
)
def test_wrong_values_are_named(hint: Any, value: Any, problem: str) -> None:
    """With their place."""
    with pytest.raises(ValueError, match=problem):
        value_of(hint, value, "x")


@pytest.mark.parametrize(
    ("hint", "problem"),
    [
        (set[int], "x: set"),
        (dict[int, str], "x: the keys of a dict are str"),
        (Callable[[], int], "x: "),
        (Endless, "x.next.*more than 8 types"),
        (object, "x: object has no JSON Schema"),
    ],
)
def test_types_without_a_schema_are_refused(hint: Any, problem: str) -> None:
    """When the function is declared, not when it is called."""
    with pytest.raises(TypeError, match=problem):
        schema_of(hint, "x")


def test_a_tool_is_described_by_its_function() -> None:
    """Name, docstring, parameters; those with a default may be left out."""

    def look(where: str, far: bool = False) -> None:
        """Looks out of a window."""

    definition = tool_of(look).definition
    assert (definition.name, definition.description) == ("look", "Looks out of a window.")
    assert json.loads(definition.input_schema_json) == {
        "type": "object",
        "properties": {"where": {"type": "string"}, "far": {"type": "boolean"}},
        "required": ["where"],
        "additionalProperties": False,
    }


def test_functions_that_are_no_tools_are_refused() -> None:
    """With the reason."""

    def untyped(what) -> None:  # type: ignore[no-untyped-def]
        """Has no hints."""

    def many(*all_of_them: int) -> None:
        """Takes any number."""

    def large(what: str) -> None:
        """Says too much of its parameter."""

    large.__annotations__["what"] = Annotated[str, "x" * (64 << 10)]
    with pytest.raises(TypeError, match="untyped: what has no type hint"):
        tool_of(untyped)
    with pytest.raises(TypeError, match=r"many: .* cannot be given by name"):
        tool_of(many)
    with pytest.raises(ValueError, match="1 to 64 of"):
        tool_of(lambda: None)
    with pytest.raises(ValueError, match="larger than 65536 bytes"):
        tool_of(large)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("{", "wrong arguments"),
        ("[]", "no object"),
        ("{}", "'city' is missing"),
        ('{"city": 1}', "city is not str"),
        ('{"city": "x", "more": 1}', "there is no 'more'"),
        ('{"city": ' + "[" * 100_000, "wrong arguments"),
    ],
)
async def test_wrong_arguments_are_told_to_the_model(arguments: str, problem: str) -> None:
    """The function does not run."""

    def weather(city: str) -> str:
        raise AssertionError(city)

    result = await tool_of(weather).run(arguments)
    assert result.is_error
    assert problem in result.output


async def test_a_result_without_a_json_form_is_an_error() -> None:
    """The model reads what it was."""

    def odd() -> object:
        return {1, 2}

    result = await tool_of(odd).run("{}")
    assert result == ("TypeError: a tool returned a set, which has no JSON form", False, True)
