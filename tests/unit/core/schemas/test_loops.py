"""Schemas that refer to themselves."""

import json

import pytest

from turnwire.core.schemas.loops import has_endless_reference


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"not": {"$ref": "#"}},
        {"if": {"$ref": "#"}},
        {"properties": {"a": {"anyOf": [{"type": "string"}, {"$ref": "#/properties/a"}]}}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"else": {"$ref": "#/$defs/a"}}}},
        {"$defs": {"a/b~c": {"not": {"$ref": "#/$defs/a~1b~0c"}}}},
        {"$ref": "#/other/0", "other": [{"oneOf": [{"$ref": "#/other/0"}]}]},
        {"dependentSchemas": {"a": {"$ref": "#"}}},
    ],
)
def test_a_reference_that_leads_back_to_the_same_value_is_found(schema: dict[str, object]) -> None:
    """No check of it would end."""
    assert has_endless_reference(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"properties": {"a": {"$ref": "#"}}},
        {"items": {"not": {"$ref": "#"}}},
        {"additionalProperties": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
        {"properties": {"not": {"$ref": "#/$defs/not"}}, "$defs": {"not": {"type": "string"}}},
        {"const": {"$ref": "#"}, "enum": [{"not": {"$ref": "#"}}], "default": {"$ref": "#"}},
        {"$ref": "#/$defs/none"},
        {"$ref": "https://example.org/other"},
        {"$id": "https://example.org/a", "$ref": "b", "$defs": {"b": {"$id": "b", "$ref": "#"}}},
        {"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}], "$defs": {"a": {"type": "object"}}},
        {"not": True, "allOf": "odd", "properties": [], "$ref": 1},
    ],
)
def test_other_references_are_taken(schema: dict[str, object]) -> None:
    """Those that go into the value, those that are no references, and those that lead elsewhere."""
    assert not has_endless_reference(schema)


def test_long_chains_cost_what_they_have() -> None:
    """Thousands of schemas that refer to each other in turn, and one loop at their end."""
    chain = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(5000)}
    assert not has_endless_reference({"$defs": {**chain, "d5000": {}}})
    assert has_endless_reference({"$defs": {**chain, "d5000": {"$ref": "#/$defs/d0"}}})
    assert has_endless_reference(json.loads('{"not":' * 400 + '{"$ref":"#"}' + "}" * 400))
