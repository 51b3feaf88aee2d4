"""Random conversations as a session can hold them, odd ones above all: for property tests of what is sent of them."""

import hashlib
import itertools
import json
from collections.abc import Callable
from typing import Any, Self

from hypothesis import strategies as st

from tests.support.fakes.domain_values import NOW
from turnwire.domain.conversation.messages import (
    Content,
    File,
    FinishReason,
    Message,
    MessageStatus,
    MessageType,
    ModelRun,
    Part,
    PartStatus,
    ProviderContent,
    Reasoning,
    Refusal,
    Text,
    ToolResult,
    ToolStatus,
    ToolUse,
)

HOST_SECRET = "for the host's eyes"
"""In every host message and nowhere else."""

MODELS = ("claude-sonnet-4-5", "claude-opus-4-8", "gpt-5", "gpt-4o")
PROVIDERS = ("p", "q")
APIS = ("anthropic", "openai_chat", "openai_responses")

_TEXTS = ("hi", "more words", "", " ", "\n\t", "ends with space ", "héllo 🎈", "\u00a0")
_CALL_IDS = ("c1", "call_0", "", "x" * 41, "x" * 64, "x" * 100, "a b", "ünï", "toolu_01", "123456789")
_NAMES = ("read", "fs.read", "fs_read", "a b", "ünï", "n" * 100, "n" * 101, "", "read\n")
_GOOD_ARGUMENTS = ('{"n":1.0}', "", "{}", ' {"a":"b"}\n', '{"s":"\\ud83d\\ude00"}', '{"n":' + "9" * 60 + "}")
_BAD_ARGUMENTS = (
    '{"n":', "[1]", "null", '"x"', "  ", "free text", '{"n":1e999}', '{"n":NaN}', '{"s":"\\ud800"}', "{}{}",
    '{"n":' + "9" * 5000 + "}", '{"a":' + "[" * 700 + "]" * 700 + "}", '{"a":' * 5000 + "1" + "}" * 5000,
)  # fmt: skip
_ARGUMENTS = (*_GOOD_ARGUMENTS * 3, *_BAD_ARGUMENTS)
_RESULTS = (None, "", " ", "ok", "42 °")

_CONTENTS = {
    "a.png": b"\x89PNG\r\n\x1a\n0000", "b.jpg": b"\xff\xd8\xff\xe0JFIF", "c.gif": b"GIF89a",
    "d.webp": b"RIFF0000WEBPVP8 ",
    "e.pdf": b"%PDF-1.7", "f.txt": b"some words", "g.py": b"x = 1", "h.bin": b"\xff\x00\xfe",
    "empty": b"", "blank": b" \n",
}  # fmt: skip
_MIMES = (
    "image/png", "image/jpeg", "image/jpg", "image/gif", "image/webp", "image/svg+xml", "IMAGE/PNG", "application/pdf",
    "text/plain", "text/plain; charset=utf-8", "application/json", "application/octet-stream",
)  # fmt: skip

WHOLE_OUTPUT = b"the whole output of a tool"
"""Kept for people where the output was cut; no model gets it."""

FILES = {hashlib.sha256(content).hexdigest(): content for content in (*_CONTENTS.values(), WHOLE_OUTPUT)}
"""Bytes of the files that are still there, by hash."""

_HASHES = (*(hashlib.sha256(content).hexdigest() for content in _CONTENTS.values()), "0" * 64)
_WHOLE = File(
    sha256=hashlib.sha256(WHOLE_OUTPUT).hexdigest(), size_bytes=len(WHOLE_OUTPUT), mime="text/plain", filename="all"
)


class Conversation:
    """Numbers the ids of one conversation, and knows whom it mostly talks with."""

    def __init__(self, api: str, provider_id: str, model_id: str) -> None:
        """Takes the API, provider and model of three answers in four."""
        self.next = itertools.count().__next__
        self.apis = (*(api,) * 9, *APIS)
        self.providers = (*(provider_id,) * 6, *PROVIDERS)
        self.models = (*(model_id,) * 9, *MODELS)

    @classmethod
    def of_one_model(cls, api: str, provider_id: str, model_id: str) -> Self:
        """Returns a conversation in which nobody else ever answered."""
        within = cls(api, provider_id, model_id)
        within.apis, within.providers, within.models = (api,), (provider_id,), (model_id,)
        return within


@st.composite
def files(draw: st.DrawFn) -> File:
    """Draws a file of any content under any media type and name, its bytes sometimes gone."""
    return File(
        sha256=draw(st.sampled_from(_HASHES)),
        size_bytes=3,
        mime=draw(st.sampled_from(_MIMES)),
        filename=draw(st.sampled_from((*_CONTENTS, "", " ", "long" * 200 + ".pdf"))),
        language=draw(st.sampled_from(("", "python"))),
    )


@st.composite
def calls(draw: st.DrawFn) -> ToolUse:
    """Draws a tool call in any state."""
    return ToolUse(
        name=draw(st.sampled_from(_NAMES)),
        call_id=draw(st.sampled_from(_CALL_IDS)),
        input_json=draw(st.sampled_from(_ARGUMENTS)),
        status=draw(st.sampled_from((*ToolStatus, ToolStatus.SUCCESS, ToolStatus.ERROR))),
        output=draw(st.sampled_from(_RESULTS)),
        error=draw(st.sampled_from(_RESULTS)),
        files=tuple(draw(st.lists(files(), max_size=2))) if draw(st.integers(0, 3)) == 0 else (),
        full_output=draw(st.sampled_from((None, _WHOLE))),
    )


def _reasoning_states(number: int) -> dict[str, list[dict[str, Any] | None]]:
    def item(**more: Any) -> dict[str, Any]:
        return {"item": {"type": "reasoning", "id": f"rs_{number}", "summary": [], **more}}

    return {
        "anthropic": [{"signature": "c2ln"}, {"block": {"type": "redacted_thinking", "data": "AA=="}}, None],
        "openai_chat": [{"reasoning_details": [{"type": "reasoning.text", "text": "hm", "id": f"d{number}"}]}, None],
        "openai_responses": [item(encrypted_content="gAAA"), item(encrypted_content=None), item(), None],
    }


def _state(api: str, model: str, fields: dict[str, Any] | None) -> str | None:
    return None if fields is None else json.dumps({"api": api, "model": model, **fields})


@st.composite
def _reasoning(draw: st.DrawFn, api: str, model: str, within: Conversation) -> list[tuple[Content, str | None]]:
    state = draw(st.sampled_from(_reasoning_states(within.next())[api]))
    return [(Reasoning(draw(st.sampled_from(_TEXTS))), _state(api, model, state))]


@st.composite
def _hosted(draw: st.DrawFn, api: str, model: str, within: Conversation) -> list[tuple[Content, str | None]]:
    """Draws the traces of a hosted tool: for Anthropic a call, its result or both."""
    number = within.next()
    if api == "anthropic":
        use = {"type": "server_tool_use", "id": f"srvtoolu_{number}", "name": "web_search", "input": {}}
        result = {"type": "web_search_tool_result", "tool_use_id": f"srvtoolu_{number}", "content": []}
        blocks = draw(st.sampled_from(([use, result], [use, result], [use], [result])))
        return [(ProviderContent(block["type"]), _state(api, model, {"block": block})) for block in blocks]
    if api == "openai_responses":
        item = {"type": "web_search_call", "id": f"ws_{number}", "status": "completed"}
        return [(ProviderContent("web_search_call"), _state(api, model, {"item": item}))]
    return [(ProviderContent("annotation"), None)]


@st.composite
def _answer_parts(draw: st.DrawFn, api: str, model: str, within: Conversation) -> list[tuple[Content, str | None]]:
    kind = draw(
        st.sampled_from(("text", "text", "call", "call", "reasoning", "reasoning", "hosted", "refusal", "file"))
    )
    if kind == "call":
        state = _state(api, model, {"custom": True}) if draw(st.integers(0, 9)) == 0 else None
        return [(draw(calls()), state)]
    if kind == "reasoning":
        return draw(_reasoning(api, model, within))
    if kind == "hosted":
        return draw(_hosted(api, model, within))
    if kind == "file":
        return [(draw(files()), None)]
    text = draw(st.sampled_from(_TEXTS))
    if kind == "refusal":
        return [(Refusal(text), None)]
    extra = {"openai_responses": {"phase": "commentary"}, "anthropic": {"citations": [{"type": "page_location"}]}}
    return [(Text(text), _state(api, model, extra.get(api)) if draw(st.booleans()) else None)]


_PART_STATUSES = (PartStatus.COMPLETE,) * 12 + (PartStatus.INTERRUPTED, PartStatus.STREAMING)


def _message(draw: st.DrawFn, within: Conversation, kind: MessageType, contents: list[Any], **fields: Any) -> Message:
    parts = tuple(
        Part(
            part_id=f"prt_{within.next()}",
            index=index,
            content=content,
            provider_state=state,
            status=draw(st.sampled_from(_PART_STATUSES)) if kind is MessageType.ASSISTANT else PartStatus.COMPLETE,
        )
        for index, (content, state) in enumerate(contents)
    )
    return Message(
        **{
            "message_id": f"msg_{within.next()}",
            "session_id": "ses_1",
            "type": kind,
            "status": MessageStatus.COMPLETE,
            "created_at": NOW,
            "updated_at": NOW,
            "parts": parts,
            **fields,
        }
    )


_FINAL = (MessageStatus.COMPLETE,) * 12 + tuple(MessageStatus)
_REASONS = (FinishReason.STOP, FinishReason.TOOL_USE, FinishReason.PAUSED, FinishReason.LENGTH, None)


@st.composite
def answers(draw: st.DrawFn, within: Conversation) -> Message:
    """Draws an answer of any API, provider and model, in any state."""
    api, model = draw(st.sampled_from(within.apis)), draw(st.sampled_from(within.models))
    contents = [found for _ in range(draw(st.integers(0, 4))) for found in draw(_answer_parts(api, model, within))]
    run = ModelRun(provider_id=draw(st.sampled_from(within.providers)), model_requested=model)
    return _message(
        draw,
        within,
        MessageType.ASSISTANT,
        contents,
        status=draw(st.sampled_from(_FINAL)),
        finish_reason=draw(st.sampled_from(_REASONS)),
        model_run=run if draw(st.integers(0, 9)) else None,
    )


@st.composite
def user_messages(draw: st.DrawFn, within: Conversation, words: str = "") -> Message:
    """Draws a message of the user's; with `words`, one that says at least these."""
    contents: list[Any] = [(Text(words), None)] if words else []
    for _ in range(draw(st.integers(0, 2))):
        content = draw(st.one_of(st.sampled_from(_TEXTS).map(Text), files()))
        contents.append((content, None))
    return _message(draw, within, MessageType.USER, contents)


@st.composite
def _other_messages(draw: st.DrawFn, within: Conversation) -> Message:
    kind = draw(st.sampled_from((MessageType.SYSTEM, MessageType.HOST, MessageType.TOOL_RESULT)))
    if kind is MessageType.HOST:
        return _message(draw, within, kind, [(Text(HOST_SECRET), None)])
    if kind is MessageType.SYSTEM:
        return _message(draw, within, kind, [(Text(draw(st.sampled_from(_TEXTS))), None)])
    results = [
        (ToolResult(call_id=draw(st.sampled_from(_CALL_IDS)), output=draw(st.sampled_from(_TEXTS))), None)
        for _ in range(draw(st.integers(1, 2)))
    ]
    return _message(draw, within, kind, results, answers_message_id=draw(st.sampled_from(("", "", "msg_0"))))


@st.composite
def histories(draw: st.DrawFn, within: Conversation, max_size: int = 7) -> tuple[Message, ...]:
    """Draws a conversation in which anything may stand anywhere."""
    drawn: list[Message] = []
    makers: tuple[Callable[[Conversation], st.SearchStrategy[Message]], ...] = (
        answers, answers, answers, user_messages, user_messages, _other_messages,
    )  # fmt: skip
    for _ in range(draw(st.integers(0, max_size))):
        drawn.append(draw(draw(st.sampled_from(makers))(within)))
    return tuple(drawn)
