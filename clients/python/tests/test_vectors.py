"""The fold holds what the server stores: every file of clients/vectors."""

import base64
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict

from opencode.event.event_pb2 import WatchEventsResponse
from opencode.message.content_pb2 import (
    MESSAGE_STATUS_STREAMING,
    Part,
    ReasoningContent,
    RefusalContent,
    SessionMessage,
    TextContent,
)
from opencode.message.message_pb2 import ListMessagesResponse
from opencode.session.session_pb2 import SessionInfo, SessionStatus
from turnwire_client import Conversation, text_of

FOLDER = Path(os.environ.get("TURNWIRE_VECTORS") or Path(__file__).parents[2] / "vectors")
FILES = sorted(FOLDER.glob("*.json"))


def folded(vector: dict[str, Any], *, looks: bool) -> Conversation:
    """Returns what the client holds after the last batch; with `looks`, somebody reads every text after each event."""
    batches = [WatchEventsResponse.FromString(base64.b64decode(batch)) for batch in vector["batches"]]
    named = (event.session_id for batch in batches for event in batch.events if event.session_id)
    held = Conversation(next(named, ""))
    if "start" in vector:
        listed = ParseDict(vector["start"], ListMessagesResponse())
        held.reset(listed.messages, sequence=listed.sequence, resume_token=listed.resume_token)
    for batch in batches:
        for event in batch.events:
            before = event.SerializeToString(deterministic=True)
            held.apply(event)
            if looks:
                assert held.messages is not held.waiting
            assert event.SerializeToString(deterministic=True) == before, "the fold changed an event"
        held.resume_token = batch.resume_token or held.resume_token
    return held


def comparable(messages: Iterable[SessionMessage]) -> list[SessionMessage]:
    """Returns copies without what a growing answer changes without an event."""
    copies = []
    for message in messages:
        copies.append(copy := SessionMessage())
        copy.CopyFrom(message)
        copy.DiscardUnknownFields()  # the JSON form of a file has none
        for field in ("update_time", *(("usage", "model_run") if copy.status == MESSAGE_STATUS_STREAMING else ())):
            copy.ClearField(field)  # type: ignore[arg-type]
    return copies


def parsed(messages: list[dict[str, Any]]) -> list[SessionMessage]:
    """Returns messages of a file."""
    return [ParseDict(message, SessionMessage()) for message in messages]


@pytest.mark.parametrize("looks", [False, True], ids=["once", "always"])
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_vector(file: Path, looks: bool) -> None:
    """Whether the texts are read once, at the end, or after each event."""
    vector = json.loads(file.read_text())
    held, want = folded(vector, looks=looks), vector["want"]
    assert held.needs_reread is want["needs_reread"]
    if held.needs_reread:
        return
    assert comparable(held.messages) == parsed(want["messages"])
    assert held.waiting_ids == want["waiting"]
    assert comparable(held.waiting) == parsed(want["waiting_messages"])
    assert held.permissions.keys() == set(want["permissions"])
    assert held.questions.keys() == set(want["questions"])
    assert SessionStatus.Name(held.status) == want["status"]
    assert held.session == (None if want["session"] is None else ParseDict(want["session"], SessionInfo()))
    assert held.deleted is want["deleted"]
    assert held.resume_token == want["resume_token"]


def test_there_are_vectors() -> None:
    """An empty folder would test nothing."""
    assert FILES


def test_text_of_joins_the_text_parts() -> None:
    """And leaves out everything else."""
    parts = [
        Part(reasoning=ReasoningContent(text="Hm.")),
        Part(text=TextContent(text="één ")),
        Part(refusal=RefusalContent(text="no")),
        Part(text=TextContent(text="世界")),
    ]
    assert text_of(SessionMessage(parts=parts)) == "één 世界"
    assert text_of(SessionMessage()) == ""
