"""The schemas of schemas: one document for each draft, which says what the library's documents say."""

import json

import pytest
from jsonschema.validators import (
    Draft3Validator,
    Draft4Validator,
    Draft6Validator,
    Draft7Validator,
    Draft201909Validator,
    Draft202012Validator,
)

from turnwire.core.schemas.meta import is_meta_schema, meta_schema

DRAFTS = (
    Draft3Validator, Draft4Validator, Draft6Validator, Draft7Validator, Draft201909Validator, Draft202012Validator,
)  # fmt: skip
SCHEMAS = [
    {},
    {"type": "object", "properties": {"a": {"type": ["string", "null"]}}, "required": ["a"]},
    {"type": "objekt"},
    {"properties": {"a": {"minimum": "1"}}},
    {"properties": []},
    {"items": [{"type": 3}]},
    {"prefixItems": [{"minLength": -1}]},
    {"$defs": {"a": {"$defs": {"b": {"not": {"pattern": 5}}}}}},
    {"definitions": {"a": {"enum": "x"}}},
    {"dependentRequired": {"a": ["b", "b"]}},
    {"dependencies": {"a": {"type": "x"}}},
    {"additionalProperties": {"if": {"then": 3}}},
    {"required": []},
    {"$ref": 5},
    {"exclusiveMinimum": True, "minimum": 1},
    {"contentSchema": {"type": "x"}},
    {"unevaluatedProperties": {"type": "x"}},
]


@pytest.mark.parametrize("kind", DRAFTS)
@pytest.mark.parametrize("schema", SCHEMAS, ids=json.dumps)
def test_a_schema_is_valid_as_the_draft_says(kind: type, schema: dict[str, object]) -> None:
    """In every place where a schema may have schemas."""
    expected = kind(kind.META_SCHEMA).is_valid(schema)  # type: ignore[attr-defined, call-arg]
    assert kind(meta_schema(kind)).is_valid(schema) is expected  # type: ignore[call-arg]


@pytest.mark.parametrize("kind", DRAFTS)
def test_nothing_in_it_names_another_document(kind: type) -> None:
    """Where one does, the library goes on with keywords of its own."""
    text = json.dumps(meta_schema(kind))
    assert '"$ref": "#' in text
    names = ('"$ref": "m', '"$ref": "h', '"$schema": "', '"$id": "h', '"$dynamicRef": "', '"$recursiveRef": "')
    assert not [name for name in names if name in text]


def test_the_schemas_of_drafts_are_known() -> None:
    """A tool that takes a schema refers to one."""
    assert is_meta_schema("http://json-schema.org/draft-07/schema#")
    assert is_meta_schema("https://json-schema.org/draft/2020-12/schema")
    assert not is_meta_schema("https://example.org/schema")
