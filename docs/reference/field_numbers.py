"""The next free field number of every message of the contract, read from its descriptors."""

import importlib
from collections.abc import Iterator
from pathlib import Path

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor

_ROOT = Path(__file__).parents[2]
_EVENT = "opencode.event.SessionEvent"
_FIRST_OWN_NUMBER = 16
"""In messages of the fixed contract."""
_FIRST_PASSING_NUMBER = 32
"""In `SessionEvent`: the first kinds that are not durable; free numbers are before and behind them."""

_INTRODUCTION = """\
# Next free field numbers

`make generate` writes this page from the contract. Take the next number of a message; a message that is not here yet
starts at 1. Planned numbers are kept for the fields named beside them: nothing else takes them.
"""

PLANNED = {
    "opencode.event.SessionEvent": {
        28: "message_redacted",
        29: "actor",
    },
    "opencode.event.WatchEventsRequest": {8: "heartbeat_interval", 9: "session_ids"},
    "opencode.file.DownloadFileRequest": {3: "offset", 4: "size"},
    "opencode.message.SendMessageRequest": {25: "labels"},
    "opencode.message.TextContent": {2: "citations"},
    "opencode.server.GetServerInfoResponse": {9: "regions"},
    "opencode.session.ListSessionsRequest": {23: "filter"},
    "opencode.tool.ToolDefinition": {4: "title", 5: "output_schema_json", 6: "read_only", 7: "destructive"},
    "opencode.turn.GenerationOptions": {11: "seed", 12: "service_tier"},
    "opencode.turn.Turn": {19: "sent_context"},
}
"""Full name of a message -> the numbers that are kept for planned fields, with what they are for."""


def field_numbers() -> str:
    """Returns the page."""
    fixed, packages = fixed_messages(), dict[str, list[Descriptor]]()
    for message in messages():
        packages.setdefault(message.file.package, []).append(message)
    pages = [_INTRODUCTION]
    for package, found in packages.items():
        rows = "".join(
            f"| `{message.name}` | {_next_in_words(message, fixed)} | {_planned_in_words(message)} |\n"
            for message in found
        )
        pages.append(f"## `{package}`\n\n| message | next | planned, do not take |\n|---|---|---|\n{rows}")
    return "\n".join(pages)


def fixed_messages() -> frozenset[str]:
    """Returns the full names of the messages of the fixed contract."""
    image = (_ROOT / "tests/contract/fixed_contract.binpb").read_bytes()
    files = descriptor_pb2.FileDescriptorSet.FromString(image).file
    return frozenset(f"{file.package}.{message.name}" for file in files for message in file.message_type)


def modules() -> Iterator[object]:
    """Returns the generated module of each file of the contract."""
    for path in sorted((_ROOT / "proto/opencode").rglob("*.proto")):
        name = path.relative_to(_ROOT / "proto").with_suffix("").as_posix().replace("/", ".")
        yield importlib.import_module(f"{name}_pb2")


def messages() -> Iterator[Descriptor]:
    """Returns every message of the contract, file by file in the order of their declaration."""
    for module in modules():
        yield from module.DESCRIPTOR.message_types_by_name.values()  # type: ignore[attr-defined]


def _next_in_words(message: Descriptor, fixed: frozenset[str]) -> str:
    taken = [*_taken(message), *PLANNED.get(message.full_name, ())]
    if message.full_name != _EVENT:
        first = _FIRST_OWN_NUMBER if message.full_name in fixed else 1
        return str(max([first - 1, *taken]) + 1)
    lasting = max(number for number in taken if number < _FIRST_PASSING_NUMBER) + 1
    return (
        f"{lasting} (to {_FIRST_PASSING_NUMBER - 1}) and {max(taken) + 1}; "
        "a durable kind also becomes a member of `EventKind` with its number"
    )


def _planned_in_words(message: Descriptor) -> str:
    return ", ".join(f"{number} {name}" for number, name in PLANNED.get(message.full_name, {}).items())


def _taken(message: Descriptor) -> list[int]:
    """Returns the numbers that are or were a field's."""
    proto = descriptor_pb2.DescriptorProto()
    message.CopyToProto(proto)
    return [field.number for field in proto.field] + [
        number for gap in proto.reserved_range for number in range(gap.start, gap.end)
    ]
