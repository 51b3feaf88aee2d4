"""The JSON API as OpenAPI 3.1: the methods with one answer, as the web listener takes them, for `make docs`.

Made of the descriptors of the contract and their comments. Streams speak envelopes, which OpenAPI has no form for.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from docs.reference.api import comments_by_name
from docs.reference.field_numbers import modules
from turnwire import __version__

_SCALARS: Mapping[int, dict[str, Any]] = {
    FieldDescriptor.TYPE_BOOL: {"type": "boolean"},
    FieldDescriptor.TYPE_STRING: {"type": "string"},
    FieldDescriptor.TYPE_BYTES: {"type": "string", "contentEncoding": "base64"},
    FieldDescriptor.TYPE_DOUBLE: {"type": "number"},
    FieldDescriptor.TYPE_FLOAT: {"type": "number"},
    FieldDescriptor.TYPE_INT32: {"type": "integer", "format": "int32"},
    FieldDescriptor.TYPE_UINT32: {"type": "integer", "format": "uint32"},
    FieldDescriptor.TYPE_INT64: {"type": "string", "format": "int64"},
    FieldDescriptor.TYPE_UINT64: {"type": "string", "format": "uint64"},
}
"""ProtoJSON: numbers of 64 bits are text."""
_OWN_FORMS: Mapping[str, dict[str, Any]] = {
    "google.protobuf.Timestamp": {"type": "string", "format": "date-time"},
    "google.protobuf.Duration": {"type": "string", "pattern": r"^-?\d+(\.\d+)?s$"},
    "google.protobuf.FieldMask": {"type": "string"},
    "google.protobuf.Empty": {"type": "object"},
}
_ERROR = {
    "type": "object",
    "properties": {
        "code": {"type": "string"},
        "message": {"type": "string"},
        "details": {"type": "array", "items": {"type": "object"}},
    },
}
_JSON = "application/json"


def openapi() -> dict[str, Any]:
    """Returns the document."""
    comments, paths = comments_by_name(), dict[str, Any]()
    schemas: dict[str, Any] = {"Error": _ERROR}
    for module in modules():
        for service in module.DESCRIPTOR.services_by_name.values():  # type: ignore[attr-defined]
            for method in service.methods:
                if not method.server_streaming:
                    paths[f"/{service.full_name}/{method.name}"] = {"post": _operation(method, comments)}
                    for message in (method.input_type, method.output_type):
                        _add(message, schemas, comments)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Turnwire", "version": __version__},
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": dict(sorted(schemas.items())),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def _operation(method: Any, comments: Mapping[str, str]) -> dict[str, Any]:
    def content(schema: dict[str, Any]) -> dict[str, Any]:
        return {"content": {_JSON: {"schema": schema}}}

    return {
        "operationId": method.full_name.replace(".", "_"),
        "tags": [method.containing_service.name],
        "description": comments.get(method.full_name, ""),
        "requestBody": {"required": True, **content(_reference(method.input_type))},
        "responses": {
            "200": {"description": "The answer.", **content(_reference(method.output_type))},
            "default": {"description": "An error.", **content({"$ref": "#/components/schemas/Error"})},
        },
    }


def _reference(kind: Descriptor | EnumDescriptor) -> dict[str, Any]:
    own = _OWN_FORMS.get(kind.full_name)
    return own if own is not None else {"$ref": f"#/components/schemas/{kind.full_name}"}


def _add(message: Descriptor, schemas: dict[str, Any], comments: Mapping[str, str]) -> None:
    """Adds a message and all that its fields name."""
    if message.full_name in schemas or message.full_name in _OWN_FORMS:
        return
    schemas[message.full_name] = schema = {"type": "object", "description": comments.get(message.full_name, "")}
    schema["properties"] = {  # type: ignore[assignment]
        field.json_name: {**_of_field(field), "description": comments.get(field.full_name, "")}
        for field in message.fields
    }
    for field in message.fields:
        for kind in _named(field):
            if isinstance(kind, Descriptor):
                _add(kind, schemas, comments)
            else:
                names = [value.name for value in kind.values]
                schemas.setdefault(kind.full_name, {"type": "string", "enum": names})


def _named(field: FieldDescriptor) -> Iterator[Descriptor | EnumDescriptor]:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        yield from _named(field.message_type.fields_by_name["value"])
    elif kind := field.message_type or field.enum_type:
        yield kind


def _of_field(field: FieldDescriptor) -> dict[str, Any]:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return {"type": "object", "additionalProperties": _of_one(field.message_type.fields_by_name["value"])}
    return {"type": "array", "items": _of_one(field)} if field.is_repeated else _of_one(field)


def _of_one(field: FieldDescriptor) -> dict[str, Any]:
    kind = field.message_type or field.enum_type
    return _reference(kind) if kind else dict(_SCALARS[field.type])
