"""Arguments against the schema of their tool: what the model reads, and what it costs."""

import json
import time
import urllib.request

import pytest

from turnwire.core.tools.schemas import problem_of_arguments, problem_of_schema

FIT = "the arguments do not fit the tool's schema: "
SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {
            "count": {"type": "integer", "minimum": 3},
            "name": {"type": "string", "pattern": "^[a-z]+$"},
            "items": {"type": "array", "items": {"$ref": "#/$defs/item"}, "uniqueItems": True},
        },
        "patternProperties": {"^x_": {"type": "boolean"}},
        "required": ["count"],
        "additionalProperties": False,
        "$defs": {"item": {"type": "object", "properties": {"id": {"const": 1}}}},
    }
)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"count": 3}, ""),
        ({"count": 3.0, "x_y": True}, ""),
        ({"count": 3, "items": [{"id": 1}, {"id": 1, "more": {}}]}, ""),
        ({}, FIT + "'count' is a required property"),
        ({"count": 1}, FIT + "count: 1 is less than the minimum of 3"),
        ({"count": 3, "name": "A"}, FIT + "name: 'A' does not match '^[a-z]+$'"),
        ({"count": 3, "x_y": 1}, FIT + "x_y: 1 is not of type 'boolean'"),
        ({"count": 3, "other": 1}, FIT + "'other' is not a property of the schema"),
        ({"count": 3, "items": [{"id": 2}]}, FIT + "items[0].id: 1 was expected"),
        ({"count": 3, "items": [{"id": 1}, {"id": 1.0}]}, FIT + "items: has items that are not unique"),
        ({"name": 1}, FIT + "name: 1 is not of type 'string'; 'count' is a required property"),
    ],
)
async def test_the_problem_names_path_and_mistake(arguments: object, problem: str) -> None:
    """Several problems come together, so that a model repairs them together."""
    assert await problem_of_arguments(SCHEMA, json.dumps(arguments)) == problem


@pytest.mark.parametrize(
    ("text", "begin"),
    [
        ("", ""),
        ("{", "the arguments are not valid JSON: "),
        ("[" * 100_000, "the arguments are not valid JSON: "),
        ("[1]", "the arguments are not a JSON object"),
        ("null", "the arguments are not a JSON object"),
    ],
)
async def test_arguments_are_a_json_object(text: str, begin: str) -> None:
    """No text at all is an empty object: some providers send nothing for a tool without arguments."""
    problem = await problem_of_arguments("", text)
    assert problem[: len(begin)] == begin
    assert bool(problem) == bool(begin)


async def test_the_problem_is_short() -> None:
    """However large the value, and however many mistakes."""
    many = json.dumps({"count": "x" * 1_000_000, "items": [1] * 1000})
    assert len(await problem_of_arguments(SCHEMA, many)) < 5 * 310 + len(FIT)


@pytest.mark.parametrize(
    ("schema", "begin"),
    [
        ("", ""),
        ("{}", ""),
        (SCHEMA, ""),
        ('{"$schema":"http://json-schema.org/draft-07/schema#","type":"object"}', ""),
        ('{"type":"object","properties":{"a":{"$ref":"#"}}}', ""),
        (r'{"properties":{"a":{"pattern":"\\\\p{L}"}}}', ""),
        ("[]", "is not a JSON object"),
        ("{", "is not valid JSON: "),
        ('{"type":"objekt"}', "is not a JSON Schema: type: 'objekt'"),
        ('{"properties":{"a":{"minimum":"1"}}}', "is not a JSON Schema: properties.a.minimum: "),
        ('{"$ref":"http://127.0.0.1:1/x"}', "refers to 'http://127.0.0.1:1/x', which is not in it"),
        ('{"$ref":"#/$defs/none"}', "refers to '#/$defs/none'"),
        ('{"$schema":5}', "is not a JSON Schema"),
        ('{"items":' * 600 + "{}" + "}" * 600, "is nested too deeply"),
    ],
)
async def test_a_schema_is_checked_itself(schema: str, begin: str) -> None:
    """Before a model is told of it."""
    problem = await problem_of_schema(schema)
    assert problem[: len(begin)] == begin
    assert bool(problem) == bool(begin)


async def test_nothing_is_ever_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even by a reference that cannot be seen before the call."""

    def fetch(*_: object, **__: object) -> None:
        raise AssertionError("something was fetched")

    monkeypatch.setattr(urllib.request, "urlopen", fetch)
    schema = '{"$id":"http://127.0.0.1:1/a","$ref":"http://127.0.0.1:1/b"}'
    assert await problem_of_schema(schema) == ""
    assert await problem_of_arguments(schema, "{}") == ""


async def test_costly_checks_are_given_up() -> None:
    """References that double at each step, endless ones, and long lists of long enumerations end soon."""
    doubling = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(30)}
    schemas = [
        json.dumps({"$ref": "#/$defs/d0", "$defs": {**doubling, "d30": {}}}),
        '{"$ref":"#"}',
        json.dumps({"properties": {"a": {"items": {"enum": list(range(10_000))}}}}),
        json.dumps({"properties": {"a": {"uniqueItems": True, "items": {"type": "object"}}}}),
    ]
    arguments = json.dumps({"a": [{"n": n} for n in range(20_000)]})
    began = time.process_time()
    for schema in schemas:
        await problem_of_schema(schema)
        await problem_of_arguments(schema, arguments)
    assert time.process_time() - began < 10
