"""The schemas of schemas that the drafts define, each as one document.

The library's own are several documents that name their draft, so it would check schemas with its own keywords, whose
cost nobody counts, and go through all documents for each reference.
"""

from functools import lru_cache
from typing import Any
from urllib.parse import urljoin

_NAMES = ("$schema", "$id", "id", "$anchor", "$dynamicAnchor", "$comment")
_MERGED = ("properties", "$defs")


@lru_cache
def meta_schema(kind: Any) -> dict[str, Any]:
    """Returns the schema of the schemas of a draft, of which `kind` is the library's class."""
    whole = kind.META_SCHEMA
    if "allOf" in whole:
        documents = [whole, *(_document(urljoin(whole["$id"], part["$ref"])) for part in whole["allOf"])]
        merged = {key: {k: v for one in documents for k, v in one.get(key, {}).items()} for key in _MERGED}
        whole = {"type": whole["type"], **merged}
    found: dict[str, Any] = _plain(whole)
    return found


def is_meta_schema(reference: str) -> bool:
    """Returns whether a reference leads to the schema of a draft, which tools that take a schema refer to."""
    from jsonschema_specifications import REGISTRY  # noqa: PLC0415 - takes a moment to import

    return reference.partition("#")[0] in REGISTRY


def _document(uri: str) -> Any:
    from jsonschema_specifications import REGISTRY  # noqa: PLC0415

    return REGISTRY.contents(uri)


def _plain(node: Any) -> Any:
    """Returns a part of a schema without names of its own, whose references all lead to the same document."""
    if isinstance(node, list):
        return [_plain(item) for item in node]
    if not isinstance(node, dict):
        return node
    plain = {}
    for key, value in node.items():
        if not isinstance(value, str):  # all else is a property of that name
            plain[key] = _plain(value)
        elif key in ("$dynamicRef", "$recursiveRef"):
            plain["$ref"] = "#"
        elif key == "$ref":
            plain[key] = "#" + value.partition("#")[2]
        elif key not in _NAMES:
            plain[key] = value
    return plain
