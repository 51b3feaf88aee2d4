"""Arguments against the schema of their tool: what the model reads, and what it costs."""

import asyncio
import json
import threading
import time
import tracemalloc

import pytest

from turnwire.core import schemas
from turnwire.core.schemas import (
    MAX_STEPS,
    TooCostlyError,
    check_value,
    problem_of_arguments,
    problem_of_schema,
    problem_of_value,
    problems_of_schemas,
)

NO_STRING = "1 is not of type 'string'"
FIT = "the arguments do not fit the tool's schema: "
SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {
            "count": {"type": "integer", "minimum": 3},
            "name": {"type": "string", "maxLength": 3, "pattern": "^[a-z]+$"},
            "unit": {"enum": ["m", "km", 1]},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "items": {"type": "array", "items": {"$ref": "#/$defs/item"}, "minItems": 1},
            "pair": {"prefixItems": [{"type": "string"}, {"type": "number"}], "items": False},
        },
        "required": ["count"],
        "additionalProperties": False,
        "$defs": {"item": {"type": "object", "properties": {"id": {"const": 1}}}},
    }
)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"count": 3}, ""),
        ({"count": 3.0, "note": None, "unit": 1, "pair": ["a", 1.5]}, ""),
        ({"count": 3, "items": [{"id": 1}, {"id": 1, "more": {}}]}, ""),
        ({}, "'count' is a required property"),
        ({"count": 1}, "count: 1 is less than the minimum of 3"),
        ({"count": True}, "count: true is not of type 'integer'"),
        ({"count": 3, "name": "ABCD"}, "name: 'ABCD' has more characters than 3"),
        ({"count": 3, "other": 1}, "'other' is not a property of the schema"),
        ({"count": 3, "unit": "mile"}, "unit: 'mile' is not one of ['m', 'km', 1]"),
        ({"count": 3, "unit": True}, "unit: true is not one of ['m', 'km', 1]"),
        ({"count": 3, "note": 1}, f"note: 1 fits none of the choices: {NO_STRING}; 1 is not of type 'null'"),
        ({"count": 3, "items": []}, "items: a list has fewer items than 1"),
        ({"count": 3, "items": [{"id": 2}, 7]}, "items[0].id: 1 was expected; items[1]: 7 is not of type 'object'"),
        ({"count": 3, "pair": ["a", 1, {}]}, "pair[2]: an object is not allowed here"),
        ({"name": 1}, f"name: {NO_STRING}; 'count' is a required property"),
    ],
)  # fmt: skip
async def test_the_problem_names_path_and_mistake(arguments: object, problem: str) -> None:
    """Several problems come together, so that a model repairs them together."""
    assert await problem_of_arguments(SCHEMA, json.dumps(arguments)) == (FIT + problem if problem else "")


@pytest.mark.parametrize(
    ("schema", "value", "fits"),
    [
        ({"allOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"a": 1}, False),
        ({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"b": 1}, True),
        ({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, {}, False),
        ({"additionalProperties": {"type": "string"}}, {"a": "x"}, True),
        ({"additionalProperties": {"type": "string"}}, {"a": 1}, False),
        ({"additionalProperties": False, "patternProperties": {"^x_": {}}}, {"x_a": 1}, True),
        ({"properties": {"a": {"type": ["string", "null"]}}}, {"a": None}, True),
        ({"properties": {"a": {"$ref": "#"}}, "required": ["b"]}, {"b": 1, "a": {}}, False),
        ({"properties": {"a": {"$ref": "#/$defs/x~1y%20z"}}, "$defs": {"x/y z": {"type": "null"}}}, {"a": 1}, False),
        ({"properties": {"a": {"items": [{"type": "null"}]}}}, {"a": [None, 1]}, True),
        ({"properties": {"a": {"exclusiveMaximum": 3}}}, {"a": 3}, False),
        ({"properties": {"a": {"exclusiveMinimum": True, "minimum": 3}}}, {"a": 3}, True),
        ({"properties": {"a": {"const": [1]}}}, {"a": [2]}, True),
        ({"properties": {"a": {"const": [1]}}}, {"a": {}}, False),
        ({"properties": {"a": {"maxProperties": 1}}}, {"a": {"x": 1, "y": 2}}, False),
    ],
)
async def test_other_keywords_mean_what_json_schema_says(schema: object, value: object, fits: bool) -> None:
    """Lists and objects are not compared as a whole: that may be long, and is left to the tool."""
    assert (await problem_of_arguments(json.dumps(schema), json.dumps(value)) == "") is fits


@pytest.mark.parametrize(
    ("text", "begin"),
    [
        ("", ""),
        ("{", "the arguments are not valid JSON: "),
        ('{"a":' + "[" * 100_000, "the arguments are not valid JSON: "),
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
    many = json.dumps({"count": "x" * 900_000, "items": [1] * 1000, "y" * 10_000: 1})
    assert len(await problem_of_arguments(SCHEMA, many)) < 5 * 310 + len(FIT)
    nested = {"anyOf": [{"anyOf": [{"anyOf": [{"type": "null"}, {"const": "x" * 90}] * 5}] * 5}] * 5}
    assert len(await problem_of_arguments(json.dumps(nested), "{}")) < 310 + len(FIT)


@pytest.mark.parametrize(
    ("schema", "begin"),
    [
        ("", ""),
        ("{}", ""),
        (SCHEMA, ""),
        ('{"$schema":"http://json-schema.org/draft-07/schema#","type":"object"}', ""),
        ('{"type":"object","properties":{"a":{"$ref":"#"}}}', ""),
        ('{"properties":{"a":{"$ref":"https://json-schema.org/draft/2020-12/schema"}}}', ""),
        ('{"$ref":"#there","$defs":{"a":{"$anchor":"there"}}}', ""),
        (r'{"properties":{"a":{"pattern":"\\\\p{L}"}}}', ""),
        ("[]", "is not a JSON object"),
        ("{", "is not valid JSON: "),
        ('{"type":"objekt"}', "is not a JSON Schema: type: 'objekt'"),
        ('{"properties":{"a":{"minimum":"1"}}}', "is not a JSON Schema: properties.a.minimum: '1' is not a number"),
        ('{"properties":{"a":5}}', "is not a JSON Schema: properties.a: 5 is not a schema"),
        ('{"required":"a"}', "is not a JSON Schema: required: 'a' is not a list of names"),
        ('{"items":[{"anyOf":{}}]}', "is not a JSON Schema: items.anyOf: an object is not a list of schemas"),
        ('{"$ref":"http://127.0.0.1:1/x"}', "refers to 'http://127.0.0.1:1/x', which is not in it"),
        ('{"$ref":"#/$defs/none"}', "refers to '#/$defs/none'"),
        ('{"$schema":5}', "is not a JSON Schema"),
        ('{"items":' * 600 + "{}" + "}" * 600, "is nested too deeply"),
        ('{"items":' * 100_000, "is n"),
    ],
)
async def test_a_schema_is_checked_itself(schema: str, begin: str) -> None:
    """Before a model is told of it."""
    [problem] = await problems_of_schemas((schema,))
    assert problem[: len(begin)] == begin
    assert bool(problem) == bool(begin)


DOUBLING = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(30)}
BIG = {f"n{number}": "x" * 10 for number in range(20_000)}
TWICE = {"allOf": [{"properties": {"a": {"$ref": "#"}}}] * 2}


def within_itself(levels: int) -> object:
    """Returns an object in an object, and so on."""
    return {"a": within_itself(levels - 1)} if levels else {}


COSTLY = {
    "references": ({"$ref": "#/$defs/d0", "$defs": {**DOUBLING, "d30": {}}}, {}),
    "recursion": (TWICE, within_itself(30)),
    "endless": ({"allOf": [{"$ref": "#"}, {"$ref": "#"}]}, {}),
    "enum": ({"properties": {"a": {"items": {"enum": list(range(9000))}}}}, {"a": list(range(8_900, 9_000)) * 100}),
    "allOf": ({"allOf": [{"additionalProperties": {"type": "string"}}] * 2000}, BIG),
    "oneOf": ({"properties": {"a": {"items": {"oneOf": [{"const": n} for n in range(900)]}}}}, {"a": [*range(900)]}),
}
CHEAP = {
    "required": ({"properties": {"a": {"items": {"required": [*BIG]}}}}, {"a": [{}] * 9000}),
    "pattern": ({"properties": {"a": {"pattern": "(a+)+$"}}}, {"a": "a" * 50_000 + "!"}),
    "anyOf": ({"anyOf": [{"type": "string"}] * 2000}, BIG),
    "long names": ({"additionalProperties": {"items": {"type": "null"}}}, {"k" * 400_000: [1] * 50_000}),
    "long pointer": ({"properties": {"a": {"items": {"$ref": "#/" + "x" * 200_000}}}}, {"a": [1] * 20_000}),
    "long choices": ({"properties": {"a": {"items": {"enum": ["x" * 200] * 3000}}}}, {"a": ["y" * 200] * 4000}),
    "many properties": ({"properties": {name: {"type": "string"} for name in BIG}}, BIG),
}


@pytest.mark.matrix
@pytest.mark.parametrize(("schema", "value"), COSTLY.values(), ids=COSTLY)
async def test_costly_checks_are_given_up(schema: object, value: object) -> None:
    """Whatever makes them costly; the tool checks for itself."""
    schema_json, value_json = json.dumps(schema), json.dumps(value)
    with pytest.raises(TooCostlyError):
        check_value(schema_json, value_json, MAX_STEPS)
    assert await problem_of_arguments(schema_json, value_json) == ""


@pytest.mark.matrix
@pytest.mark.parametrize(("schema", "value"), (COSTLY | CHEAP).values(), ids=COSTLY | CHEAP)
async def test_hostile_schemas_cost_little(schema: object, value: object) -> None:
    """In CPU time and memory: a tenth of a second is usual, here or with the schema alone."""
    texts = (json.dumps(schema), json.dumps(value))
    began = time.process_time()
    await problems_of_schemas(texts[:1])
    await problem_of_arguments(*texts)
    assert time.process_time() - began < 2
    tracemalloc.start()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(schemas, "MAX_STEPS", 5_000)  # tracing makes each step slow
            await problem_of_arguments(*texts)
        assert tracemalloc.get_traced_memory()[1] < 30 * sum(map(len, texts)) + 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "schema",
    [
        '{"not":{"$ref":"#"}}',
        '{"$ref":"#"}',
        '{"anyOf":[{"$ref":"#"}]}',
        '{"$anchor":"x","not":{"$ref":"#x"}}',
        '{"$dynamicAnchor":"x","not":{"$dynamicRef":"#x"}}',
        '{"$id":"http://127.0.0.1/b","not":{"$ref":"b"}}',
        '{"$ref":"https://json-schema.org/draft/2020-12/schema"}',
    ],
)
async def test_schemas_in_themselves_fail_nothing(schema: str) -> None:
    """They are valid, and arguments are not checked against them."""
    assert problem_of_schema(schema) == ""
    assert await problem_of_arguments(schema, '{"a":{"not":{}}}') == ""


ODD = ["7", "[]", '"x"', "true", "null", '{"type":[[]]}', '{"$ref":[]}', '{"enum":{}}', '{"items":7}', '{"anyOf":{}}']


@pytest.mark.parametrize("inner", ODD)
async def test_an_invalid_schema_fails_nothing(inner: str) -> None:
    """One may be stored from before it was invalid: what it says nothing about is not checked."""
    for schema in (
        inner,
        f'{{"properties":{{"a":{inner}}}}}',
        f'{{"additionalProperties":{inner},"required":{inner}}}',
    ):
        assert isinstance(await problem_of_arguments(schema, '{"a":[{}]}'), str)


async def test_checks_do_not_wait_for_the_shared_threads() -> None:
    """Those read files and look names up; all of them may be busy."""
    may_end = threading.Event()
    loop = asyncio.get_running_loop()
    busy = [loop.run_in_executor(None, may_end.wait, 20) for _ in range(64)]
    assert await problems_of_schemas((json.dumps({"title": "x" * 9000}),)) == ("",)
    may_end.set()
    await asyncio.gather(*busy)


async def test_what_is_long_leaves_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small schema and short arguments are checked at once, unless that takes too many steps."""
    threads = list[tuple[str, int]]()

    def noted(schema_json: str, value_json: str, max_steps: int) -> str:
        threads.append((threading.current_thread().name.partition("_")[0], max_steps))
        return check_value(schema_json, value_json, max_steps)

    monkeypatch.setattr(schemas, "check_value", noted)
    assert await problem_of_arguments(SCHEMA, '{"count":3}') == ""
    assert await problem_of_arguments(SCHEMA, json.dumps({"count": 3, "note": "x" * 5000})) == ""
    at_once, beside = ("MainThread", schemas.INLINE_STEPS), ("schemas", MAX_STEPS)
    assert threads == [at_once, beside]
    many = json.dumps(["x"] * schemas.INLINE_STEPS + [0])
    assert f"[{schemas.INLINE_STEPS}]" in await problem_of_value('{"items":{"type":"string"}}', many)
    assert threads == [at_once, beside, at_once, beside]


@pytest.mark.parametrize("number", ["1" * 5000, "1e999", '"\\ud800"', "NaN", '{"a":' * 2000 + "1" + "}" * 2000])
async def test_odd_json_is_told(number: str) -> None:
    """Numbers that no number holds, halves of characters and endless nesting are no reason to fail."""
    assert "not valid JSON: " in await problem_of_arguments(SCHEMA, f'{{"count":{number}}}')


async def test_long_arguments_are_only_read() -> None:
    """They are no JSON object, or they are left to the tool."""
    text = "x" * schemas.MAX_VALUE_CHARS
    assert await problem_of_arguments(SCHEMA, json.dumps({"other": text})) == ""
    assert await problem_of_arguments(SCHEMA, json.dumps([text])) == "the arguments are not a JSON object"
    assert (await problem_of_arguments(SCHEMA, json.dumps({"a": text})[:-1])).startswith("the arguments are not valid")
