"""Makes up arguments of a tool call from the tool's JSON Schema."""

import json
from collections.abc import Iterable
from functools import reduce
from typing import Any

from turnwire.domain.conversation.turns import ToolDefinition

_MAX_DEPTH = 20
"""Maximum depth of values. A schema that requires itself has no finite value."""


def fitting_arguments(tools: Iterable[ToolDefinition], name: str) -> str:
    """Returns arguments for a declared tool as JSON text; "{}" for one that is not declared.

    They contain only required properties and fit the common keywords of JSON Schema; patterns and formats are ignored.
    An invalid schema gives "{}".
    """
    schema_json = next((tool.input_schema_json for tool in tools if tool.name == name), "") or "{}"
    schema = json.loads(schema_json)
    try:
        return json.dumps(_value({"type": "object", **schema}, schema, 0))
    except (TypeError, AttributeError, LookupError, RecursionError):
        return "{}"


def _value(schema: Any, root: Any, depth: int) -> Any:
    schema = _resolved(schema, root)
    for keyword in ("const", "default"):
        if keyword in schema:
            return schema[keyword]
    for keyword in ("enum", "examples"):
        if schema.get(keyword):
            return schema[keyword][0]
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = kind[0] if isinstance(kind, list) else kind
    if depth == _MAX_DEPTH or kind not in ("object", "array"):
        return _scalar(kind, schema)
    if kind == "array":
        return [_value(schema.get("items", {}), root, depth + 1)] * schema.get("minItems", 1)
    properties = schema.get("properties", {})
    return {name: _value(properties.get(name, {}), root, depth + 1) for name in schema.get("required", ())}


def _scalar(kind: str, schema: Any) -> Any:
    match kind:
        case "integer" | "number":
            return min(
                max(1, schema.get("minimum", 1), schema.get("exclusiveMinimum", 0) + 1), schema.get("maximum", 1e9)
            )
        case "boolean":
            return True
        case "string":
            return "text".ljust(schema.get("minLength", 0), "x")[: schema.get("maxLength")]
        case _:
            return None


def _resolved(schema: Any, root: Any) -> dict[str, Any]:
    """Follows references inside the schema and takes the first of several alternatives."""
    for _ in range(_MAX_DEPTH):
        if not isinstance(schema, dict):
            break
        keyword = next((k for k in ("$ref", "anyOf", "oneOf", "allOf") if k in schema), "")
        if not keyword:
            return schema
        rest = {k: v for k, v in schema.items() if k != keyword}
        if keyword == "$ref":
            steps = schema["$ref"].removeprefix("#").strip("/").split("/")
            chosen = reduce(lambda node, step: node.get(step, {}), steps, root)
        else:
            chosen = schema[keyword][0]
        schema = {**rest, **chosen}
    return {}
