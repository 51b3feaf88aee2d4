"""Names of the contract work in every language that code is generated for.

Go and Swift put the files of all packages into one place; Go, Java and C# generate members whose names must not meet
those of fields; browsers cannot stream requests.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import PurePosixPath

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

from tests.support.clients.fixed_client import ROOT, compile_sources

TAKEN_BY_GO = {"reset", "string", "descriptor", "marshal", "unmarshal", "proto_message"}
"""Methods of a generated message; a field of that name gets another one in Go."""

Field = FieldDescriptorProto


def messages_in(messages: list[DescriptorProto]) -> Iterator[DescriptorProto]:
    """Yields the messages and those inside them; the entries of maps are not written by anybody."""
    for message in messages:
        if not message.options.map_entry:
            yield message
            yield from messages_in(list(message.nested_type))


def repeated_names(files: list[FileDescriptorProto]) -> list[str]:
    """Returns the names of files, and of messages, enums and services, that occur more than once."""
    names = Counter(PurePosixPath(file.name).name for file in files)
    for file in files:
        for message in messages_in(list(file.message_type)):
            names.update([message.name, *(enum.name for enum in message.enum_type)])
        names.update(entry.name for entry in (*file.enum_type, *file.service))
    return [name for name, count in names.items() if count > 1]


def field_clashes(message: DescriptorProto) -> list[str]:
    """Returns the fields of a message whose names meet what a generator makes of the message or of another field."""
    taken = dict.fromkeys(TAKEN_BY_GO, "a method in Go")
    for field in message.field:
        if field.label == Field.LABEL_REPEATED:
            taken |= {f"{field.name}_{word}": f"a member of {field.name} in Java" for word in ("count", "list")}
        if field.type == Field.TYPE_STRING:
            taken[f"{field.name}_bytes"] = f"a member of {field.name} in Java"
        if field.type == Field.TYPE_ENUM:
            taken[f"{field.name}_value"] = f"a member of {field.name} in Java"
    # an optional field is stored as a oneof of its own, which no language shows
    hidden = {field.oneof_index for field in message.field if field.proto3_optional}
    for index, oneof in enumerate(message.oneof_decl):
        if index not in hidden:
            taken[f"{oneof.name}_case"] = f"a member of {oneof.name} in Java and C#"
    clashes = [f"{message.name}.{field.name}: {taken[field.name]}" for field in message.field if field.name in taken]
    for field in message.field:
        if "".join(word.capitalize() for word in field.name.split("_")) == message.name:
            clashes.append(f"{message.name}.{field.name}: the message itself in C#")
    return clashes


def broken_rules(files: list[FileDescriptorProto]) -> list[str]:
    """Returns what breaks a rule, as a line for each."""
    broken = [f"{name} occurs more than once" for name in repeated_names(files)]
    for file in files:
        for message in messages_in(list(file.message_type)):
            broken += field_clashes(message)
        for service in file.service:
            broken += [
                f"{service.name}.{method.name} streams requests" for method in service.method if method.client_streaming
            ]
    return broken


def test_names_work_in_every_language() -> None:
    """Files, messages, enums, services, fields and methods of the whole contract."""
    files = [file for file in compile_sources(ROOT / "proto").file if file.package.startswith("opencode.")]
    assert len(files) == len(list((ROOT / "proto").rglob("*.proto")))
    assert broken_rules(files) == []
