"""Messages: what is derived from their parts, and that stored ones come back."""

import msgspec
import pytest

from tests.support.fakes.domain_values import NOW, make_answer, make_message, make_part
from turnwire.domain.conversation.messages import (
    Content,
    File,
    Message,
    Part,
    ProviderContent,
    Reasoning,
    Refusal,
    Text,
    ToolResult,
    ToolStatus,
    ToolUse,
)
from turnwire.domain.ids import new_id


def test_calls_and_files_come_in_order() -> None:
    """With their parts, whatever stands between."""
    first, second = ToolUse(name="a"), ToolUse(name="b")
    file = File(sha256="ab", size_bytes=1, mime="text/plain")
    message = make_answer("msg_1", first, "text", file, second)
    assert message.tool_calls() == ((message.parts[0], first), (message.parts[3], second))
    assert message.files() == (file,)


def test_a_call_names_its_files_before_its_whole_output() -> None:
    """Those that it has."""
    plot, log = (File(sha256=name, size_bytes=1, mime="text/plain") for name in ("a", "b"))
    call = ToolUse(name="draw", files=(plot,))
    assert (ToolUse(name="draw").stored_files(), call.stored_files()) == ((), (plot,))
    assert msgspec.structs.replace(call, full_output=log).stored_files() == (plot, log)


def test_a_call_awaits_its_client_when_only_its_result_is_missing() -> None:
    """Its answer has ended, nobody is to be asked, and it is no tool of the server."""
    call = ToolUse(name="draw", started_at=NOW)
    assert call.awaits_client
    for field, value in (("started_at", None), ("permission_id", "per_1"), ("name", "fs.draw")):
        assert not msgspec.structs.replace(call, **{field: value}).awaits_client
    for status in set(ToolStatus) - {ToolStatus.PENDING}:
        assert not msgspec.structs.replace(call, status=status).awaits_client


@pytest.mark.parametrize(
    ("status", "settled"),
    [
        (ToolStatus.PENDING, False),
        (ToolStatus.RUNNING, False),
        (ToolStatus.SUCCESS, True),
        (ToolStatus.ERROR, True),
        (ToolStatus.CANCELLED, True),
    ],
)
def test_three_statuses_of_a_call_are_final(status: ToolStatus, settled: bool) -> None:
    """Its result is there, or will never come."""
    assert status.settled is settled


@pytest.mark.parametrize(
    "content",
    [
        Text("é"),
        Reasoning(""),
        Refusal("no"),
        File(sha256="ab", size_bytes=1, mime="m/m", filename="f", path="/f", language="python"),
        ToolUse(name="t", input_json='{"n": 1.0}', logs=("l",)),
        ToolResult(call_id="c", output="", is_error=True),
        ProviderContent("web_search_call"),
    ],
)
def test_every_content_survives_json(content: Content) -> None:
    """Its type is kept by its tag."""
    part = make_part(0, content, provider_state='{"a" : 1}')
    assert msgspec.json.decode(msgspec.json.encode(part), type=Part) == part


def test_a_message_survives_json() -> None:
    """Times keep their microseconds and zone."""
    message = make_message("msg_1", "a", sender="u", metadata_json="{}")
    assert msgspec.json.decode(msgspec.json.encode(message), type=Message) == message


def test_ids_name_their_kind_and_are_unique() -> None:
    """And sort by the time of their making."""
    ids = [new_id("msg") for _ in range(1000)]
    assert len(set(ids)) == 1000
    assert all(len(one) == 36 and one.startswith("msg_") for one in ids)
