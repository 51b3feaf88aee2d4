"""Every file of the contract names its place in each language by one rule, and meets no type there."""

import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.descriptor import FileDescriptor

PROTO = Path(__file__).parents[2] / "proto"
NAMES = sorted(path.relative_to(PROTO).as_posix() for path in PROTO.rglob("*.proto"))
CSHARP_NAMESPACE = "Turnwire.Opencode"


def file(name: str) -> FileDescriptor:
    """Returns the descriptor of a file such as `opencode/tool/tool.proto`."""
    module = importlib.import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    descriptor: FileDescriptor = module.DESCRIPTOR
    return descriptor


def outer_class(name: str) -> str:
    """Returns the Java class that holds what is common to a file, such as `SessionEventProto`."""
    return "".join(word.capitalize() for word in Path(name).stem.split("_")) + "Proto"


def types(name: str) -> Iterator[str]:
    """Returns the names of the messages, enums and services of a file."""
    descriptor = file(name)
    yield from descriptor.message_types_by_name
    yield from descriptor.enum_types_by_name
    yield from descriptor.services_by_name


@pytest.mark.parametrize("name", NAMES)
def test_file_sets_its_options_by_the_rule(name: str) -> None:
    """Exactly these are set. What another option would change is a name that clients use."""
    options = file(name).GetOptions()
    assert {field.name: value for field, value in options.ListFields()} == {
        "csharp_namespace": CSHARP_NAMESPACE,
        "go_package": "github.com/turnwire/turnwire/generated/go/opencode;opencode",
        "java_multiple_files": True,
        "java_outer_classname": outer_class(name),
        "java_package": f"io.github.turnwire.{file(name).package}",
        "objc_class_prefix": "TWR",
    }


def test_classes_of_a_file_meet_no_type() -> None:
    """Java hides a message behind an outer class of its name; C# and Objective-C have such a class for each file too.

    Cases are not told apart: some file systems do not.
    """
    taken = {kind.lower() for name in NAMES for kind in types(name)}
    for name in NAMES:
        outer = outer_class(name).lower()
        assert not taken & {outer, *(outer.removesuffix("proto") + word for word in ("reflection", "root"))}, name


def test_no_type_has_the_name_of_the_csharp_namespace() -> None:
    """Where both are in reach, C# takes the one that the reader did not mean."""
    assert {kind for name in NAMES for kind in types(name)} & set(CSHARP_NAMESPACE.split(".")) == set()
