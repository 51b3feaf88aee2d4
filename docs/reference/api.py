"""The reference of the API: a page for each package, made of the comments of `proto/`, for the site of `make docs`."""

import re
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    ServiceDescriptorProto,
)

from turnwire.api.rights import LEAST_ROLE

_ROOT = Path(__file__).parents[2]
_MESSAGES, _ENUMS, _SERVICES = 4, 5, 6
"""Numbers of fields of FileDescriptorProto, which paths of comments are made of."""
_INNER_MESSAGES, _INNER_ENUMS, _MEMBERS = 3, 4, 2
"""The same of DescriptorProto; fields, methods and values have one number."""

Comments = Mapping[tuple[int, ...], str]


@cache
def api_pages() -> dict[str, str]:
    """Returns the text of each page by its path in docs/, in the order of the packages."""
    by_package: dict[str, list[FileDescriptorProto]] = {}
    for file in _files():
        if file.package.startswith("opencode."):
            by_package.setdefault(file.package, []).append(file)
    return {_path(package): _page(package, files) for package, files in sorted(by_package.items())}


def comments_by_name() -> dict[str, str]:
    """Returns the comment of each message, field and method of the contract by its full name, in one line."""
    found = {}
    for file in _files():
        at = {tuple(place.path): " ".join(place.leading_comments.split()) for place in file.source_code_info.location}
        for index, service in enumerate(file.service):
            for member, method in enumerate(service.method):
                path = (_SERVICES, index, _MEMBERS, member)
                found[f"{file.package}.{service.name}.{method.name}"] = at.get(path, "")
        for index, message in enumerate(file.message_type):
            found |= _comments_of(message, f"{file.package}.{message.name}", at, (_MESSAGES, index))
    return found


def _comments_of(message: DescriptorProto, name: str, at: Comments, path: tuple[int, ...]) -> dict[str, str]:
    found = {name: at.get(path, "")}
    for index, field in enumerate(message.field):
        found[f"{name}.{field.name}"] = at.get((*path, _MEMBERS, index), "")
    for index, inner in enumerate(message.nested_type):
        found |= _comments_of(inner, f"{name}.{inner.name}", at, (*path, _INNER_MESSAGES, index))
    return found


@cache
def _files() -> tuple[FileDescriptorProto, ...]:
    """Returns the files of the contract with their comments."""
    from grpc_tools import protoc  # type: ignore[import-untyped]  # noqa: PLC0415 - tests import this module

    names = sorted(path.relative_to(_ROOT / "proto").as_posix() for path in (_ROOT / "proto/opencode").rglob("*.proto"))
    with tempfile.TemporaryDirectory() as folder:
        image = Path(folder, "image")
        options = ["--include_source_info", f"--descriptor_set_out={image}"]
        includes = [f"-I{_ROOT / 'proto'}", f"-I{Path(protoc.__file__).parent / '_proto'}"]
        if protoc.main(["protoc", *includes, *options, *names]) != 0:
            raise RuntimeError("protoc does not take proto/")
        return tuple(FileDescriptorSet.FromString(image.read_bytes()).file)


def _path(package: str) -> str:
    return f"reference/api/{package.rpartition('.')[2]}.md"


def _page(package: str, files: list[FileDescriptorProto]) -> str:
    services, types = [], []
    for file in files:
        comments = {tuple(place.path): place.leading_comments for place in file.source_code_info.location}
        services += [_service(package, one, comments, (_SERVICES, at)) for at, one in enumerate(file.service)]
        types += [_message(package, one, comments, (_MESSAGES, at)) for at, one in enumerate(file.message_type)]
        types += [_enum(one, comments, (_ENUMS, at)) for at, one in enumerate(file.enum_type)]
    return "\n".join([f"# {package}\n", *services, *types])


def _service(package: str, service: ServiceDescriptorProto, comments: Comments, path: tuple[int, ...]) -> str:
    parts = [f"## {service.name}\n\n{_text(comments.get(path, ''))}\n"]
    for at, method in enumerate(service.method):
        answer = f"{'stream of ' if method.server_streaming else ''}{_type(method.output_type, package)}"
        role = LEAST_ROLE[f"{package}.{service.name}.{method.name}"].name.lower()
        parts.append(
            f"### {method.name}\n\n{_type(method.input_type, package)} → {answer}; least role: {role}\n\n"
            f"{_text(comments.get((*path, _MEMBERS, at), ''))}\n"
        )
    return "\n".join(parts)


def _message(package: str, message: DescriptorProto, comments: Comments, path: tuple[int, ...], outer: str = "") -> str:
    if message.options.map_entry:
        return ""
    name = f"{outer}{message.name}"
    rows = [
        f"| `{field.name}` | {field.number} | {_kind(field, message, package)} |"
        f" {_text(comments.get((*path, _MEMBERS, at), ''), in_row=True)} |\n"
        for at, field in enumerate(message.field)
    ]
    table = "| field | number | type | |\n|---|---|---|---|\n" + "".join(rows) if rows else "No fields.\n"
    parts = [f"### {name}\n\n{_text(comments.get(path, ''))}\n\n{table}"]
    for at, inner in enumerate(message.nested_type):
        parts.append(_message(package, inner, comments, (*path, _INNER_MESSAGES, at), f"{name}."))
    for at, one in enumerate(message.enum_type):
        parts.append(_enum(one, comments, (*path, _INNER_ENUMS, at), f"{name}."))
    return "\n".join(filter(None, parts))


def _enum(enum: EnumDescriptorProto, comments: Comments, path: tuple[int, ...], outer: str = "") -> str:
    rows = [
        f"| `{value.name}` | {value.number} | {_text(comments.get((*path, _MEMBERS, at), ''), in_row=True)} |\n"
        for at, value in enumerate(enum.value)
    ]
    head = f"### {outer}{enum.name}\n\n{_text(comments.get(path, ''))}\n\n"
    return head + "| value | number | |\n|---|---|---|\n" + "".join(rows)


def _kind(field: FieldDescriptorProto, message: DescriptorProto, package: str) -> str:
    repeated = "repeated " if field.label == FieldDescriptorProto.LABEL_REPEATED else ""
    for entry in message.nested_type:
        if entry.options.map_entry and field.type_name.endswith(f".{message.name}.{entry.name}"):
            key, value = (_kind(one, entry, package) for one in entry.field)
            return f"map of {key} to {value}"
    if field.type_name:
        return repeated + _type(field.type_name, package)
    optional = "optional " if field.proto3_optional else ""
    return f"{repeated}{optional}{FieldDescriptorProto.Type.Name(field.type).removeprefix('TYPE_').lower()}"


def _type(name: str, package: str) -> str:
    """Returns a link to a type of the contract; the name alone of one of protobuf's own."""
    of, _, short = name.removeprefix(".").rpartition(".")
    while of.startswith("opencode.") and of.count(".") > 1:  # a message in a message
        of, _, outer = of.rpartition(".")
        short = f"{outer}.{short}"
    if not of.startswith("opencode."):
        return f"`{of}.{short}`"
    anchor = re.sub(r"[^a-z0-9_-]", "", short.lower())
    page = "" if of == package else f"{of.removeprefix('opencode.')}.md"
    return f"[{short}]({page}#{anchor})"


def _text(comment: str, *, in_row: bool = False) -> str:
    """Returns a comment as Markdown in which nothing is markup."""
    text = re.sub(r"([<>*_\[\]{}])", r"\\\1", comment.strip())
    return (
        " ".join(text.split()).replace("|", "\\|") if in_row else "\n".join(line.strip() for line in text.splitlines())
    )
