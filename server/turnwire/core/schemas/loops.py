"""References that lead back to where they stand without going into the value: a check of them would never end."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

_IN_PLACE_ONE = ("not", "if", "then", "else")
_IN_PLACE_MANY = ("allOf", "anyOf", "oneOf")
_IN_PLACE_NAMED = ("dependentSchemas", "dependencies")
_INSIDE_ONE = (
    "additionalProperties", "items", "contains", "propertyNames", "additionalItems",
    "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
_INSIDE_MANY = ("prefixItems", "items")
_INSIDE_NAMED = ("properties", "patternProperties", "$defs", "definitions")

_Node = dict[str, Any]


def has_endless_reference(schema: _Node) -> bool:
    """Returns whether a reference leads back to itself without going into a property or an item.

    Only references within the document that are JSON pointers are looked at. Costs what the schema has.
    """
    if _has_other_bases(schema):
        return False
    done, waiting, seen = set[int](), [schema], {id(schema)}
    while waiting:
        node = waiting.pop()
        if _is_in_loop(node, schema, done):
            return True
        for inner in (*_inside(node), *_in_place(node, schema)):
            if id(inner) not in seen:
                seen.add(id(inner))
                waiting.append(inner)
    return False


def _is_in_loop(start: _Node, root: _Node, done: set[int]) -> bool:
    """Goes through what is applied to the same value as a schema; `done` are those from which no loop is reached."""
    if id(start) in done:
        return False
    path = [(id(start), iter(_in_place(start, root)))]
    on_path = {id(start)}
    while path:
        node, steps = path[-1]
        for inner in steps:
            if id(inner) in on_path:
                return True
            if id(inner) not in done:
                on_path.add(id(inner))
                path.append((id(inner), iter(_in_place(inner, root))))
                break
        else:
            path.pop()
            on_path.discard(node)
            done.add(node)
    return False


def _in_place(node: _Node, root: _Node) -> Iterator[_Node]:
    """Yields the schemas that are applied to the same value."""
    reference = node.get("$ref")
    if isinstance(reference, str) and (target := _target(reference, root)) is not None:
        yield target
    yield from _of(node, _IN_PLACE_ONE, _IN_PLACE_MANY, _IN_PLACE_NAMED)


def _inside(node: _Node) -> Iterator[_Node]:
    return _of(node, _INSIDE_ONE, _INSIDE_MANY, _INSIDE_NAMED)


def _of(node: _Node, one: tuple[str, ...], many: tuple[str, ...], named: tuple[str, ...]) -> Iterator[_Node]:
    for key in one:
        if isinstance(inner := node.get(key), dict):
            yield inner
    for key in many:
        if isinstance(inner := node.get(key), list):
            yield from (item for item in inner if isinstance(item, dict))
    for key in named:
        if isinstance(inner := node.get(key), dict):
            yield from (item for item in inner.values() if isinstance(item, dict))


def _target(reference: str, root: _Node) -> _Node | None:
    """Returns what a JSON pointer in the document leads to; None when it is none, or leads to no object."""
    if reference != "#" and not reference.startswith("#/"):
        return None
    node: Any = root
    for step in unquote(reference[1:]).split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict) and key in node:
            node = node[key]
        elif isinstance(node, list) and key.isdecimal() and len(key) < 9 and int(key) < len(node):
            node = node[int(key)]
        else:
            return None
    return node if isinstance(node, dict) else None


def _has_other_bases(schema: _Node) -> bool:
    """Returns whether a part of the document has an id, which pointers in it are relative to."""
    waiting: list[Any] = list(schema.values())
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += node
        elif isinstance(node, dict):
            if isinstance(node.get("$id"), str):
                return True
            waiting += node.values()
    return False
