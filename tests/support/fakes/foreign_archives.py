"""Archives of other systems, made for the tests, and what their readers give."""

import copy
import io
import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st

from turnwire.domain.archive.records import ArchivedMessage, ArchivedSession, ImportProblem, Record, SessionEnd
from turnwire.domain.conversation.messages import Message
from turnwire.domain.conversation.sessions import Session
from turnwire.interop.archive.bounds import ArchiveLimits
from turnwire.interop.archives import READERS, WRITERS

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
"""When archives are read."""
SMALL = ArchiveLimits(
    conversation_bytes=100_000, values=2_000, depth=20, messages=50, entries=20, unpacked_bytes=200_000, ratio=20,
    file_bytes=1_000, problems=5,
)  # fmt: skip
PNG = b"\x89PNG\r\n\x1a\nfake"
PNG_URI = "data:image/png;base64,iVBORw0KGgpmYWtl"


def records(
    name: str, content: bytes, bounds: ArchiveLimits | None = None, options: Mapping[str, str] | None = None
) -> list[Record | ImportProblem]:
    """Returns what the reader of a format makes of an archive."""
    reader = READERS[name](lambda: NOW, bounds or ArchiveLimits())
    return list(reader.read(io.BytesIO(content), options or {}))


def sessions_of(found: Iterable[Record | ImportProblem]) -> list[tuple[Session, list[Message]]]:
    """Returns each session with its messages, and checks that they come in order and are counted."""
    sessions: list[tuple[Session, list[Message]]] = []
    for record in found:
        match record:
            case ArchivedSession(session):
                sessions.append((session, []))
            case ArchivedMessage(message):
                sessions[-1][1].append(message)
            case SessionEnd(messages):
                assert messages == len(sessions[-1][1])
    return sessions


def problems_of(found: Iterable[Record | ImportProblem]) -> list[tuple[str, str]]:
    """Returns reason and place of each problem."""
    return [(problem.reason, problem.place) for problem in found if isinstance(problem, ImportProblem)]


def written(name: str, given: Iterable[Record | ImportProblem]) -> bytes:
    """Returns the archive that the writer of a format makes of records."""
    writer = WRITERS[name]()
    parts = [writer.write(record) for record in given if not isinstance(record, ImportProblem)]
    return b"".join(parts) + writer.end()


def as_json(value: Any) -> bytes:
    """Returns JSON text."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


def as_lines(*values: Any) -> bytes:
    """Returns JSON Lines."""
    return b"".join(as_json(value) + b"\n" for value in values)


def mutations(value: Any) -> st.SearchStrategy[Any]:
    """Draws the value with one to three places changed: another type, another number, nothing."""
    return st.lists(st.tuples(st.sampled_from(sorted(_paths(value), key=repr)), _ODD), min_size=1, max_size=3).map(
        lambda changes: _changed(value, changes)
    )


_ODD = st.sampled_from(
    [None, True, 0, -1, 1.5, 2**70, 1e308, "", "x", "\ud800", "message", [], {}, [None], {"x": {}}, [[]], "data:,", ...]
)
"""Odd replacements of a value; ... takes the key or item away."""


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from _paths(item, (*path, key))


def _changed(value: Any, changes: Iterable[tuple[tuple[Any, ...], Any]]) -> Any:
    whole = copy.deepcopy(value)
    for path, odd in changes:
        parent = whole
        try:
            for key in path[:-1]:
                parent = parent[key]
            if odd is ...:
                del parent[path[-1]]
            else:
                parent[path[-1]] = copy.deepcopy(odd)
        except (LookupError, TypeError):
            continue  # an earlier change took the place away
    return whole


OPENAI: Any = {
    "id": "conv-1",
    "title": "Weather",
    "created": 1_700_000_000.5,
    "messages": [
        {"role": "developer", "content": "Be brief."},
        {
            "role": "user",
            "name": "ann",
            "content": [
                {"type": "text", "text": "What is that? 天気"},
                {"type": "image_url", "image_url": {"url": PNG_URI}},
                {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
                {"type": "file", "file": {"filename": "a.txt", "file_data": "data:text/plain;base64,aGk="}},
            ],
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}},
                {"id": "c2", "type": "function", "function": {"name": "look", "arguments": ""}},
            ],
        },
        {
            "role": "tool",
            "tool_call_id": "c1",
            "content": [{"type": "text", "text": "a "}, {"type": "text", "text": "sun"}],
        },
        {"role": "assistant", "content": "The sun.", "refusal": "No more."},
        {"role": "tool", "tool_call_id": "unknown", "content": "lost"},
    ],
}
"""A conversation of OpenAI's form with everything that the form can carry."""


def node(
    message_id: str,
    parent: str,
    role: str,
    content: Any,
    *,
    name: str | None = None,
    recipient: str = "all",
    **metadata: Any,
) -> tuple[str, Any]:
    """Returns a node of ChatGPT's mapping; a text stands for a content of type "text"."""
    given = {"content_type": "text", "parts": [content]} if isinstance(content, str) else content
    message = {
        "id": message_id,
        "author": {"role": role, "name": name, "metadata": {}},
        "create_time": 1_700_000_000.25 + len(message_id),
        "update_time": None,
        "content": given,
        "status": "finished_successfully",
        "end_turn": None,
        "weight": 1.0,
        "metadata": metadata,
        "recipient": recipient,
        "channel": None,
    }
    return message_id, {"id": message_id, "message": message, "parent": parent, "children": []}


def chatgpt(*nodes: tuple[str, Any], **more: Any) -> Any:
    """Returns a conversation of ChatGPT's export; the last node is the current one."""
    root = {"id": "root", "message": None, "parent": None, "children": []}
    return {
        "title": "Charts",
        "create_time": 1_700_000_000.5,
        "update_time": 1_700_000_900,
        "mapping": {"root": root, **dict(nodes)},
        "current_node": nodes[-1][0] if nodes else "root",
        "conversation_id": "conv-1",
        "id": "conv-1",
        "is_archived": False,
        **more,
    }


def zipped(**entries: bytes) -> bytes:
    """Returns a ZIP; "__" in a name stands for "/", and "_dot_" for "."."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries.items():
            archive.writestr(name.replace("__", "/").replace("_dot_", "."), data)
    return content.getvalue()


CHATGPT: Any = chatgpt(
    node("s", "root", "system", "", is_visually_hidden_from_conversation=True),
    node(
        "ctx",
        "s",
        "user",
        {"content_type": "user_editable_context", "user_profile": "I am Ann.", "user_instructions": "Be brief."},
        is_visually_hidden_from_conversation=True,
        is_user_system_message=True,
    ),
    node(
        "ask",
        "ctx",
        "user",
        {
            "content_type": "multimodal_text",
            "parts": [
                {"content_type": "image_asset_pointer", "asset_pointer": "file-service://file-Abc1", "size_bytes": 12},
                "Draw this. 絵",
            ],
        },
        attachments=[
            {"id": "file-Abc1", "name": "photo.png", "mimeType": "image/png"},
            {"id": "file-Xyz2", "name": "rows.csv", "mime_type": "text/csv"},
        ],
    ),
    node(
        "think",
        "ask",
        "assistant",
        {"content_type": "thoughts", "thoughts": [{"summary": "Plan", "content": "Draw it."}]},
        model_slug="o3",
    ),
    node("recap", "think", "assistant", {"content_type": "reasoning_recap", "content": "Thought for 8s"}),
    node(
        "call",
        "recap",
        "assistant",
        {"content_type": "code", "language": "unknown", "text": "plot()"},
        recipient="python",
        model_slug="o3",
    ),
    node("out", "call", "tool", {"content_type": "execution_output", "text": "42"}, name="python"),
    node(
        "pic",
        "out",
        "tool",
        {
            "content_type": "multimodal_text",
            "parts": [{"content_type": "image_asset_pointer", "asset_pointer": "sediment://file_0d#file_0d#p_0.png"}],
        },
        name="python",
    ),
    node("web", "pic", "assistant", {"content_type": "code", "text": '{"q": "x"}'}, recipient="web.run"),
    node(
        "hit",
        "web",
        "tool",
        {"content_type": "tether_quote", "url": "https://x.y", "title": "T", "text": "q"},
        name="web",
    ),
    node("code", "hit", "assistant", {"content_type": "code", "language": "python", "text": "1 + 1"}),
    node("old", "code", "assistant", "Here it was.", model_slug="gpt-4o"),
    node(
        "end",
        "code",
        "assistant",
        {"content_type": "text", "parts": ["Here it is."]},
        model_slug="gpt-4o",
        finish_details={"type": "stop", "stop_tokens": [1]},
    ),
)
"""A conversation of ChatGPT's export: instructions, pictures, thoughts, calls with results, another branch."""


def claude(*messages: Any, **more: Any) -> Any:
    """Returns a conversation of Claude's export."""
    return {
        "uuid": "conv-1",
        "name": "Poems",
        "summary": "",
        "created_at": "2025-05-01T12:00:00.123456Z",
        "updated_at": "2025-05-01T14:30:00+02:00",
        "account": {"uuid": "acc-1"},
        "chat_messages": list(messages),
        **more,
    }


def said(message_id: str, sender: str, *content: Any, **more: Any) -> Any:
    """Returns a message of Claude's export; a text stands for a block of type "text"."""
    blocks = [
        {"type": "text", "text": block, "citations": []} if isinstance(block, str) else block for block in content
    ]
    message = {
        "uuid": message_id,
        "text": "".join(str(block["text"]) for block in blocks if block["type"] == "text"),
        "content": blocks,
        "sender": sender,
        "created_at": "2025-05-01T12:00:01.5Z",
        "updated_at": "2025-05-01T12:00:02Z",
        "attachments": [],
        "files": [],
    }
    return {**message, **more}


CLAUDE: Any = claude(
    said(
        "m1",
        "human",
        "Read this. 詩",
        attachments=[{"file_name": "poem.pdf", "file_size": 9, "file_type": "pdf", "extracted_content": "A rose."}],
        files=[{"file_uuid": "0197-aa", "file_name": "rose.png"}],
    ),
    said(
        "m2",
        "assistant",
        {"type": "thinking", "thinking": "A rose it is.", "summaries": [{"summary": "Rose"}], "cut_off": False},
        "I look.",
        {"type": "tool_use", "id": "t1", "name": "web_search", "input": {"query": "rose", "n": 1.5}},
        {"type": "tool_use", "id": None, "name": "artifacts", "input": {"command": "create"}},
        {
            "type": "tool_result",
            "tool_use_id": "t1",
            "name": "web_search",
            "content": [
                {"type": "knowledge", "title": "Rose", "url": "https://x.y", "text": "A flower."},
                {"type": "text", "text": "done"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgpmYWtl"}},
            ],
            "is_error": False,
        },
        {"type": "tool_result", "tool_use_id": None, "name": "artifacts", "content": "OK", "is_error": True},
        {"type": "token_budget"},
        "It is a rose.",
    ),
    said("m3", "human", content=[], text="Thanks."),
)
"""A conversation of Claude's export: an attachment, a picture, thinking, calls with results."""


def opencode(*messages: Any, **more: Any) -> Any:
    """Returns a session as OpenCode exports it; `more` stands in its info."""
    info = {
        "id": "ses_1",
        "slug": "quiet-fox",
        "projectID": "prj_1",
        "directory": "/home/ann/project",
        "title": "Fix it",
        "version": "1.2.0",
        "time": {"created": 1_700_000_000_123, "updated": 1_700_000_900_000},
    }
    return {"info": {**info, **more}, "messages": list(messages)}


def asked(message_id: str, *parts: Any, **more: Any) -> Any:
    """Returns a user message of OpenCode; a text stands for a part of type "text"."""
    info = {
        "id": message_id,
        "sessionID": "ses_1",
        "role": "user",
        "time": {"created": 1_700_000_001_000},
        "agent": "build",
        "model": {"providerID": "anthropic", "modelID": "claude-sonnet-4"},
    }
    return {"info": {**info, **more}, "parts": _opencode_parts(message_id, parts)}


def answered(message_id: str, *parts: Any, **more: Any) -> Any:
    """Returns an assistant message of OpenCode; a text stands for a part of type "text"."""
    info = {
        "id": message_id,
        "sessionID": "ses_1",
        "role": "assistant",
        "time": {"created": 1_700_000_002_000, "completed": 1_700_000_003_500},
        "parentID": "msg_1",
        "modelID": "claude-sonnet-4",
        "providerID": "anthropic",
        "mode": "build",
        "agent": "build",
        "path": {"cwd": "/home/ann/project", "root": "/home/ann/project"},
        "cost": 0.00125,
        "tokens": {"input": 10, "output": 20, "reasoning": 5, "cache": {"read": 3, "write": 4}},
        "finish": "stop",
    }
    return {"info": {**info, **more}, "parts": _opencode_parts(message_id, parts)}


def _opencode_parts(message_id: str, parts: Iterable[Any]) -> list[Any]:
    given = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]
    number = message_id.removeprefix("msg_")
    head = {"sessionID": "ses_1", "messageID": message_id}
    return [{"id": f"prt_{number}_{index}", **head, **part} for index, part in enumerate(given)]


def tool(call_id: str, name: str = "bash", **state: Any) -> Any:
    """Returns a tool part of OpenCode."""
    time = {"start": 1_700_000_002_100, "end": 1_700_000_002_900}
    return {
        "type": "tool",
        "callID": call_id,
        "tool": name,
        "state": {"input": {"command": "ls"}, "time": time, **state},
    }


OPENCODE: Any = opencode(
    asked(
        "msg_1",
        "Fix it. 直す",
        {"type": "file", "mime": "image/png", "filename": "a.png", "url": PNG_URI},
        system="Be brief.",
    ),
    answered(
        "msg_2",
        {"type": "step-start", "snapshot": "abc"},
        {
            "type": "reasoning",
            "text": "hm",
            "time": {"start": 1, "end": 2},
            "metadata": {"anthropic": {"signature": "c2ln"}},
        },
        tool(
            "call_1",
            status="completed",
            output="a.py",
            title="List",
            metadata={"exit": 0},
            attachments=[
                {
                    "id": "prt_9",
                    "sessionID": "ses_1",
                    "messageID": "msg_2",
                    "type": "file",
                    "mime": "image/png",
                    "url": PNG_URI,
                }
            ],
        ),
        tool("call_2", status="error", error="no such file"),
        {"type": "step-finish", "reason": "tool-calls", "cost": 0, "tokens": {}},
        finish="tool-calls",
    ),
    answered("msg_3", "It is fixed."),
    asked("msg_4", "Really?"),
    answered("msg_5", "No.", error={"name": "MessageAbortedError", "data": {"message": "aborted"}}, cost=0, tokens={}),
    revert={"messageID": "msg_4", "snapshot": "abc", "diff": ""},
)
"""A session of OpenCode: a file, sealed reasoning, calls with results and files, cost, what was taken back."""

EXAMPLES: dict[str, Any] = {"chatgpt": CHATGPT, "claude": CLAUDE, "openai": OPENAI, "opencode": OPENCODE}
"""A conversation of each format, as JSON."""
