"""The version of archives: a value that gets a field needs a new one, because an older reader would lose it."""

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import inspect

from turnwire.interop.turnwire_lines.lines import VERSION, Header, Line

FIELDS = {
    "ArchiveEndLine": "sessions",
    "Budget": "max_tokens max_cost_pico_usd",
    "Compaction": "through_message_id message_count tokens_before tokens_after",
    "Estimate": "usage cost_pico_usd",
    "Failure": "reason message metadata retry_after",
    "File": "sha256 size_bytes mime filename path language form",
    "FileLine": "sha256 content",
    "GenerationOptions": (
        "temperature top_p max_output_tokens stop_sequences reasoning_effort max_steps max_turn_tokens "
        "max_turn_cost_pico_usd tool_choice response_format"
    ),
    "Header": "format version files",
    "Lease": "lease_id holder expires_at",  # refused: nobody runs an archived call
    "Message": (
        "message_id session_id type status created_at updated_at parts turn_id parent_id previous_message_id "
        "alternative_count alternative_index "
        "finish_reason provider_finish_reason model_run usage cost_pico_usd estimate failure sender "
        "sender_name request_id metadata_json compaction sent_context origin"
    ),
    "Branch": "previous_message_id turn_id",
    "MessageLine": "message hidden branch",
    "ModelRef": "provider_id model_id",
    "ModelRun": "provider_id model_requested model_served response_id is_reported",
    "Origin": "system session_id message_id",
    "Part": "part_id index content status provider_state copied_id",
    "ProviderContent": "kind",
    "Reasoning": "text",
    "Refusal": "text",
    "SentContext": (
        "system_hash tools_hash prefix_hash message_count estimated_tokens uncorrected_tokens break_reason"
    ),
    "ResponseFormat": "kind schema_json name description strict",
    "Session": (
        "title directory model agent tools compaction budget labels metadata_json system options session_id "
        "tenant created_at updated_at revision queue_revision head_sequence origin archived_at"
    ),
    "SessionEndLine": "files turns messages",
    "SessionLine": "session",
    "Text": "text",
    "ToolChoice": "mode tool_name",
    "ToolDefinition": "name description input_schema_json",
    "ToolResult": "call_id output is_error tool_call_id exit_code",
    "ToolUse": (
        "name call_id input_json status output error logs metadata_json started_at finished_at permission_id "
        "files full_output lease"
    ),
    "Turn": (
        "turn_id session_id tenant subject user_message_id status created_at model agent system options tools "
        "is_late traceparent busy_policy aimed_at_turn_id regenerates replaces_turn_id "
        "merged_into_turn_id ended_by_message_id resumes "
        "started_at ended_at finish_reason failure usage cost_pico_usd known_cost_pico_usd steps "
        "start_sequence end_sequence"
    ),
    "TurnLine": "turn",
    "Usage": (
        "input_tokens cache_read_tokens cache_write_tokens output_tokens reasoning_tokens reported_output_tokens"
    ),
}
"""Of every value in an archive of version 4. When one changes, raise VERSION, read the older versions still, and name
both in docs/reference/archive.md."""


def structs(kind: Any, found: dict[type, str]) -> Iterator[None]:
    """Notes the fields of all structures in a type."""
    if isinstance(kind, inspect.StructType):
        if kind.cls in found:
            return
        found[kind.cls] = " ".join(field.encode_name for field in kind.fields)
        inner: list[Any] = [field.type for field in kind.fields]
    elif isinstance(kind, inspect.UnionType):
        inner = list(kind.types)
    else:
        names = ("item_type", "key_type", "value_type")
        inner = [getattr(kind, name) for name in names if getattr(kind, name, None) is not None]
    for one in inner:
        yield from structs(one, found)


def test_the_fields_are_those_of_the_version() -> None:
    """Each line, and each value inside."""
    found = dict[type, str]()
    for kind in (Header, Line):
        assert list(structs(inspect.type_info(kind), found)) == []
    assert issubclass(Header, msgspec.Struct)
    assert {one.__name__: fields for one, fields in found.items()} == FIELDS
    assert VERSION == 4
