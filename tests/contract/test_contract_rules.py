"""Methods and messages of the contract keep the rules that clients build on."""

import re
from collections.abc import Iterator

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.descriptor_pb2 import MethodOptions

from docs.reference.field_numbers import messages, modules
from opencode.message.message_pb2 import DisplayMessage

READS = re.compile(r"(Get|List|Search|Query|Explain|Watch|Download|Export)[A-Z]")
STREAMED_READS = {"SubscribeGlobalEvents"}
"""Of the fixed contract, whose name says otherwise."""

OPTIONAL_MESSAGES = {
    "opencode.event.MessageUpdated.tokens",
    "opencode.message.SendMessageRequest.model",
    "opencode.session.SessionInfo.time",
}
"""Of the fixed contract."""

DISPLAY_FIELDS = [
    *("message_id", "role", "text_parts", "reasoning_parts", "tokens_input", "tokens_output", "tokens_reasoning"),
    *("tool_calls", "message_type", "status", "finish_reason", "provider_finish_reason", "files", "usage"),
    *("cost_pico_usd", "model_run", "metadata_json", "turn_id", "parent_id", "sender", "sender_name", "created_at"),
    *("updated_at", "failure", "compaction"),
]
"""All fields that a display message will ever have."""


def methods() -> Iterator[MethodDescriptor]:
    """Yields all methods of the contract."""
    for module in modules():
        for service in module.DESCRIPTOR.services_by_name.values():  # type: ignore[attr-defined]
            yield from service.methods


METHODS = list(methods())
PAGED = [method for method in METHODS if "page_size" in method.input_type.fields_by_name]
ANSWERS = [method.output_type for method in METHODS]


def test_reads_say_that_they_have_no_side_effects() -> None:
    """A client may repeat them, and a web client may send them as GET. Nothing else says so."""
    for method in METHODS:
        level = method.GetOptions().idempotency_level
        is_read = bool(READS.match(method.name)) or method.name in STREAMED_READS
        assert (level == MethodOptions.NO_SIDE_EFFECTS) == is_read


def test_pages_have_tokens() -> None:
    """Where a size can be asked for, a token can be, and the answer has the next one."""
    for method in PAGED:
        assert "page_token" in method.input_type.fields_by_name
        assert "next_page_token" in method.output_type.fields_by_name


def test_lists_of_ours_have_pages() -> None:
    """All but those that the fixed contract has without."""
    without = {method.name for method in METHODS if method.name.startswith("List") and method not in PAGED}
    assert without == {"ListAgents"}


def test_answers_with_a_sequence_have_a_token() -> None:
    """A client that watches after a sequence alone misses what a restored backup lost."""
    for answer in ANSWERS:
        if "sequence" in answer.fields_by_name:
            assert "resume_token" in answer.fields_by_name


def test_display_messages_are_frozen() -> None:
    """New fields of a message are in SessionMessage."""
    assert [field.name for field in DisplayMessage.DESCRIPTOR.fields] == DISPLAY_FIELDS


def test_enums_begin_with_a_value_that_means_nothing() -> None:
    """It tells an absent value from a real one."""
    enums = [enum for module in modules() for enum in module.DESCRIPTOR.enum_types_by_name.values()]  # type: ignore[attr-defined]
    assert enums
    assert [enum.name for enum in enums if not enum.values_by_number[0].name.endswith("_UNSPECIFIED")] == []


def test_messages_of_ours_are_not_optional() -> None:
    """A field that holds a message can be absent without the word, and taking it away later would break clients."""
    optional = {
        f"{message.full_name}.{field.name}"
        for message in messages()
        for field in message.fields
        if field.message_type is not None
        and field.containing_oneof is not None
        and field.containing_oneof.name == f"_{field.name}"
    }
    assert optional == OPTIONAL_MESSAGES
