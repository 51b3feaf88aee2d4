"""Frames of the log give back what clients are shown of an event."""

from datetime import timedelta

import msgspec
import pytest

from opencode.event import session_event_pb2 as pb
from tests.support.fakes.domain_values import NOW, make_answer, make_file, make_message, make_part, make_permission
from turnwire.api.wire.codec import ProtoCodec
from turnwire.api.wire.framing import frame
from turnwire.domain.conversation import events as e
from turnwire.domain.conversation import messages as m
from turnwire.domain.conversation.permissions import PermissionAnswer, PermissionChoice
from turnwire.domain.money import Usage

EXACT = NOW.replace(microsecond=678_000)
"""Times of calls and of permission requests have milliseconds."""

CALL = m.ToolUse(
    name="draw",
    call_id="call_1",
    input_json='{"a":1}',
    status=m.ToolStatus.SUCCESS,
    output="drawn",
    error="",
    logs=("one", "two"),
    metadata_json="{}",
    started_at=EXACT,
    finished_at=EXACT + timedelta(milliseconds=7),
    permission_id="per_1",
    files=(make_file(b"plot", "plot.png", "image/png"),),
    full_output=make_file(b"all", ""),
)
CONTENTS = (
    m.Text("é"),
    m.Reasoning(""),
    m.Refusal("no"),
    make_file(b"a file"),
    CALL,
    m.ToolResult(call_id="call_1", output="1", is_error=True),
    m.ProviderContent("web_search_call"),
)
ANSWER = make_answer(
    "msg_1",
    *CONTENTS,
    status=m.MessageStatus.FAILED,
    updated_at=NOW + timedelta(microseconds=3),
    finish_reason=m.FinishReason.ERROR,
    provider_finish_reason="length",
    model_run=m.ModelRun(provider_id="p", model_requested="m", model_served="m-1", response_id="r"),
    usage=Usage(input_tokens=0, output_tokens=9),
    cost_pico_usd=0,
    failure=m.Failure("BUSY", "busy"),
    sender="u",
    sender_name="U",
    request_id="req_1",
    previous_message_id="msg_user",
    metadata_json='{"a":1}',
    compaction=m.Compaction(through_message_id="msg_0", message_count=1, tokens_before=9, tokens_after=1),
)
REPLIED = e.PermissionReplied("per_1", "prt_1", PermissionAnswer(PermissionChoice.ALWAYS, "fine"))


def _decoded(kind: e.DurableKind) -> e.Event:
    codec = ProtoCodec()
    [event] = codec.decode_events(codec.encode_event(_event(kind)))
    return event


def _event(kind: e.DurableKind | e.EphemeralKind) -> e.Event:
    return e.Event(session_id="ses_1", kind=kind, at=NOW, turn_id="trn_1", sequence=3)


@pytest.mark.parametrize(
    "kind",
    [
        e.MessageAdded(ANSWER),
        e.MessageAdded(make_message("msg_2")),
        e.MessageFinished(msgspec.structs.replace(ANSWER, parts=())),
        e.ToolCallUpdated("msg_1", "prt_4", 4, CALL),
        e.ToolCallUpdated("msg_1", "prt_4", 4, m.ToolUse(name="draw")),
        *[e.PartFinished("msg_1", make_part(2, c, status=m.PartStatus.INTERRUPTED)) for c in CONTENTS],
        e.PermissionAsked(make_permission(created_at=EXACT, call_id="call_1", metadata_json="{}", part_index=-1)),
        REPLIED,
    ],
)
def test_a_frame_gives_its_event_back(kind: e.DurableKind) -> None:
    """With everything that the frame holds."""
    assert _decoded(kind) == _event(kind)


def test_what_clients_are_not_shown_is_not_there() -> None:
    """A provider's state, the digests of a sent context, and the place of a call that asks."""
    sent = m.SentContext(system_hash="s", tools_hash="t", prefix_hash="p", message_count=2)
    sealed = make_answer("msg_1", make_part(0, m.Text("a"), provider_state="{}"), sent_context=sent)
    shown = make_answer("msg_1", m.Text("a"))
    assert _decoded(e.MessageAdded(sealed)).kind == e.MessageAdded(shown)
    asked = _decoded(e.PermissionAsked(make_permission(part_index=3)))
    assert asked.kind == e.PermissionAsked(make_permission(part_index=-1, created_at=EXACT))


def test_a_kind_that_nobody_reads_back_is_refused() -> None:
    """By its name."""
    codec = ProtoCodec()
    with pytest.raises(ValueError, match="queue_changed"):
        _decoded(e.QueueChanged(()))
    with pytest.raises(ValueError, match="no kind"):
        codec.decode_events(frame(pb.SessionEvent(session_id="s").SerializeToString()))


def test_part_statuses_and_types_are_all_known() -> None:
    """Every value of the domain comes back."""
    for status in m.PartStatus:
        finished = e.PartFinished("msg_1", make_part(0, m.Text(""), status=status))
        assert _decoded(finished).kind == finished
    for kind in m.MessageType:
        for status in m.MessageStatus:
            added = e.MessageAdded(make_message("msg_1", type=kind, status=status))
            assert _decoded(added).kind == added
    for reason in m.FinishReason:
        ended = e.MessageFinished(make_answer("msg_1", finish_reason=reason))
        assert _decoded(ended).kind == ended
