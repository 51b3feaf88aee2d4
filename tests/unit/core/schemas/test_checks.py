"""Arguments against the schema of their tool: what the model reads, and what it costs."""

import asyncio
import json
import threading
import urllib.request

import pytest

from turnwire.core.schemas import checks, compiled
from turnwire.core.schemas.checks import SchemaChecks, SchemasTooCostlyError


async def problem_of_schema(schema: str) -> str:
    """Returns what is wrong with a schema that nobody has seen before."""
    [problem] = await SchemaChecks().problems("a", (schema,))
    return problem


async def problem_of_arguments(schema: str, arguments: str) -> str:
    """Returns what is wrong with the arguments of a call."""
    return await SchemaChecks().problem_of_arguments("a", schema, arguments)


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


COUNTED = compiled.Steps
"""The class, which a test replaces by one that keeps what it has counted."""


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[COUNTED]:
    """The counters of all checks."""
    made = list[COUNTED]()

    def make(most: int) -> COUNTED:
        made.append(COUNTED(most))
        return made[-1]

    monkeypatch.setattr(checks, "Steps", make)
    monkeypatch.setattr(compiled, "Steps", make)
    return made


DOUBLING = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(30)}
ALIKE = [{"a": [*range(1999), last]} for last in (-1, -2, -3, -4, 1999)]
BIG = {f"n{number}": "x" * 10 for number in range(20_000)}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"$ref": "#/$defs/d0", "$defs": {**DOUBLING, "d30": {}}}, {}),
        ({"properties": {"a": {"items": {"enum": list(range(9000))}}}}, {"a": list(range(20_000))}),
        ({"allOf": [{"propertyNames": {}}] * 2000}, BIG),
        ({"anyOf": [{"type": "string"}] * 2000}, BIG),
        ({"properties": {"a": {"items": {"pattern": "a*b"}}}}, {"a": ["a" * 1000 + "b"] * 200}),
        (
            {"properties": {"a": {"items": {"enum": ALIKE}}}},
            {"a": [{"a": list(range(2000))}] * 80},
        ),
        ({"properties": {"a": {"items": {"$ref": "#x"}}}, "$defs": {"a": {"$anchor": "x"}}}, {"a": [1] * 1000}),
        ({"patternProperties": {f"^p{number}": {} for number in range(100)}}, BIG),
        ({"properties": {"a": {"items": {"oneOf": [{"const": n} for n in range(900)]}}}}, {"a": list(range(900))}),
    ],
    ids=["references", "enum", "names", "quotes", "pattern", "deep enum", "anchor", "patterns", "constants"],
)
async def test_costly_checks_are_given_up(schema: object, value: object, counted: list[COUNTED]) -> None:
    """Whatever makes them costly; the tool checks for itself."""
    assert await problem_of_arguments(json.dumps(schema), json.dumps(value)) == ""
    assert counted[-1].used > compiled.MAX_STEPS


@pytest.mark.parametrize(
    "schema",
    [
        '{"not":{"$ref":"#"}}',
        '{"$ref":"#"}',
        '{"$anchor":"x","not":{"$ref":"#x"}}',
        '{"$dynamicAnchor":"x","not":{"$dynamicRef":"#x"}}',
        '{"$id":"http://127.0.0.1/b","not":{"$ref":"b"}}',
        '{"$ref":"https://json-schema.org/draft/2020-12/schema"}',
    ],
)
async def test_schemas_in_themselves_fail_nothing(schema: str) -> None:
    """They are refused, or not checked; the library's Rust code would panic at the end of the stack."""
    await problem_of_schema(schema)
    await problem_of_arguments(schema, '{"a":{"not":{}}}')


def test_a_panic_of_the_library_is_a_problem_of_the_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no Exception; others that are none, such as the end of the process, pass."""

    class PanicException(BaseException):
        """As the library has it."""

    def fail_with(error: BaseException) -> None:
        def fail(*_: object) -> None:
            raise error

        monkeypatch.setattr(compiled, "_compile", fail)

    monkeypatch.setattr(PanicException, "__module__", "pyo3_runtime")
    fail_with(PanicException())
    assert compiled.compile_schema("{}", COUNTED(1)).problem == "is not a JSON Schema: PanicException"
    fail_with(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        compiled.compile_schema("{}", COUNTED(1))


def dense(number: int) -> str:
    """Returns a schema of 12 KB that is costly for its length."""
    return json.dumps({"title": str(number), "properties": {f"{n}": {} for n in range(1000)}})


async def test_the_schemas_of_a_request_have_a_budget_together(counted: list[COUNTED]) -> None:
    """The one that goes beyond it is named; what was accepted is known from then on and costs nothing."""
    mine = SchemaChecks()
    [first] = await mine.problems("a", (dense(0),), 50_000)
    cost = counted[0].used + counted[1].used if len(counted) > 1 else counted[0].used
    assert first == ""
    with pytest.raises(SchemasTooCostlyError) as error:
        await mine.problems("a", [dense(number) for number in range(1, 6)], 2 * cost + 10)
    assert error.value.index == 2
    before = len(counted)
    assert await mine.problems("a", [dense(number) for number in range(3)], 1) == ("", "", "")
    assert len(counted) == before


async def test_what_is_kept_has_a_bound(monkeypatch: pytest.MonkeyPatch, counted: list[COUNTED]) -> None:
    """Schemas of clients displace each other, and none of the server's."""
    monkeypatch.setattr(checks, "MAX_KEPT_NODES", 2500)
    mine = SchemaChecks()
    await mine.problems("", (dense(0),))
    for number in range(1, 4):
        await mine.problems("a", (dense(number),))
    before = len(counted)
    await mine.problems("b", (dense(0), dense(2), dense(3)))
    assert len(counted) == before
    await mine.problems("b", (dense(1),))
    assert len(counted) > before


async def test_a_check_waits_for_those_before_it_alone() -> None:
    """Who brings many schemas one after the other has others in between."""
    mine, order = SchemaChecks(), list[str]()

    async def check(tenant: str, *schemas: str) -> None:
        for schema in schemas:
            await mine.problems(tenant, (schema,))
            order.append(tenant)

    many = asyncio.create_task(check("a", *map(dense, range(4))))
    await asyncio.sleep(0)
    await asyncio.gather(many, check("b", dense(10)))
    assert order.index("b") <= 1


async def test_checks_do_not_wait_for_the_shared_threads() -> None:
    """Those read files and look names up; all of them may be busy."""
    may_end = threading.Event()
    loop = asyncio.get_running_loop()
    busy = [loop.run_in_executor(None, may_end.wait, 20) for _ in range(64)]
    assert await problem_of_schema(dense(0)) == ""
    may_end.set()
    await asyncio.gather(*busy)


async def test_a_small_check_that_is_costly_leaves_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A known schema and short arguments are checked at once; what takes long begins again on the thread."""
    mine, threads = SchemaChecks(), list[str]()
    costly = json.dumps({"$ref": "#/$defs/d0", "$defs": {**DOUBLING, "d30": {}}})
    await mine.problems("a", (costly, SCHEMA))
    problem_with = compiled.Schema.problem_with

    def noted(self: compiled.Schema, value: object, max_steps: int) -> str:
        threads.append(threading.current_thread().name.partition("_")[0])
        return problem_with(self, value, max_steps)

    monkeypatch.setattr(compiled.Schema, "problem_with", noted)
    assert await mine.problem_of_arguments("a", SCHEMA, '{"count":3}') == ""
    assert threads == ["MainThread"]
    assert await mine.problem_of_arguments("a", costly, "{}") == ""
    assert threads == ["MainThread", "MainThread", "schemas"]


@pytest.mark.parametrize("number", ["1" * 5000, "1e999", '"\\ud800"', "NaN", '{"a":' * 2000 + "1" + "}" * 2000])
async def test_odd_json_is_told(number: str) -> None:
    """Numbers that no number holds, halves of characters and endless nesting are no reason to fail."""
    assert "not valid JSON: " in await problem_of_arguments(SCHEMA, f'{{"count":{number}}}')


async def test_long_arguments_are_only_read() -> None:
    """They are no JSON object, or they are left to the tool."""
    text = "x" * checks.MAX_VALUE_CHARS
    assert await problem_of_arguments(SCHEMA, json.dumps({"other": text})) == ""
    assert await problem_of_arguments(SCHEMA, json.dumps([text])) == "the arguments are not a JSON object"
    assert (await problem_of_arguments(SCHEMA, json.dumps({"a": text})[:-1])).startswith("the arguments are not valid")
