"""Files of tool results, as each API can take them; and where Anthropic's prompt cache is marked."""

import base64
from typing import Any

import msgspec

from tests.support.models.provider_requests import (
    DONE_CALL,
    HELLO,
    LOOP,
    PNG,
    anthropic,
    chat,
    message,
    responses,
    without_breakpoints,
)
from turnwire.domain.conversation.messages import File, Part, Text, ToolStatus, ToolUse
from turnwire.domain.conversation.turns import ToolDefinition
from turnwire.providers.anthropic.wire import CACHE_BREAKPOINT

BYTES = {"png": PNG, "pdf": b"%PDF", "txt": b"words", "bin": b"\xff\x00", "whole": b"all of it"}


def file(name: str, mime: str) -> File:
    """Returns a file whose hash is its name."""
    return File(sha256=name, size_bytes=2, mime=mime, filename=f"f.{name}")


IMAGE, PDF, WORDS = file("png", "image/png"), file("pdf", "application/pdf"), file("txt", "text/plain")
BINARY = file("bin", "application/octet-stream")

INLINED = '<file name="f.txt">\nwords\n</file>'
LINE = "[file f.bin (application/octet-stream, 2 bytes): cannot be shown to this model]"

PNG_BASE64 = base64.b64encode(PNG).decode()
PDF_BASE64 = base64.b64encode(b"%PDF").decode()


def answer(*files: File, **fields: Any) -> Any:
    """Returns an answer with one call whose result has files."""
    call = msgspec.structs.replace(DONE_CALL, files=files, full_output=file("whole", "text/plain"), **fields)
    return message("assistant", call)


def result_of(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the blocks of Anthropic's last message."""
    blocks: list[dict[str, Any]] = without_breakpoints(body)[-1]["content"]
    return blocks


ANTHROPIC_IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG_BASE64}}
ANTHROPIC_PDF = {
    "type": "document",
    "source": {"type": "base64", "media_type": "application/pdf", "data": PDF_BASE64},
    "title": "f.pdf",
}


def test_anthropic_takes_them_in_the_result() -> None:
    """Texts, images and documents, in order."""
    (result,) = result_of(anthropic(HELLO, answer(IMAGE, WORDS, PDF, BINARY), files=BYTES))
    assert result["content"] == [
        {"type": "text", "text": "ok"},
        ANTHROPIC_IMAGE,
        {"type": "text", "text": INLINED},
        ANTHROPIC_PDF,
        {"type": "text", "text": LINE},
    ]


def test_anthropic_takes_only_text_of_a_failed_call() -> None:
    """The rest follows behind the results."""
    failed = answer(IMAGE, WORDS, status=ToolStatus.ERROR, error="boom")
    assert result_of(anthropic(HELLO, failed, files=BYTES)) == [
        {
            "type": "tool_result",
            "tool_use_id": "c1",
            "content": [{"type": "text", "text": "ok\nboom"}, {"type": "text", "text": INLINED}],
            "is_error": True,
        },
        {"type": "text", "text": "[files of the result of f]"},
        ANTHROPIC_IMAGE,
    ]


def test_a_result_of_files_alone() -> None:
    """Nobody says that there was no output; where a text is demanded, it is there."""
    silent = answer(IMAGE, output="")
    (result,) = result_of(anthropic(HELLO, silent, files=BYTES))
    assert result["content"] == [ANTHROPIC_IMAGE]
    assert len(responses(HELLO, silent, files=BYTES)["input"][-1]["output"]) == 1
    assert chat(HELLO, silent, files=BYTES)["messages"][2]["content"] == "(no output)"


def test_responses_takes_a_list_where_text_is_not_enough() -> None:
    """Else the output stays text."""
    body = responses(HELLO, answer(IMAGE, WORDS, PDF), files=BYTES)
    assert body["input"][-1]["output"] == [
        {"type": "input_text", "text": "ok"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{PNG_BASE64}", "detail": "auto"},
        {"type": "input_text", "text": INLINED},
        {"type": "input_file", "filename": "f.pdf", "file_data": f"data:application/pdf;base64,{PDF_BASE64}"},
    ]
    assert responses(HELLO, answer(WORDS, BINARY), files=BYTES)["input"][-1]["output"] == f"ok\n\n{INLINED}\n\n{LINE}"


def test_chat_shows_images_behind_all_results_of_the_step() -> None:
    """Tool messages take only text, and have to follow their calls at once."""
    calls = [
        Part(
            part_id=f"c{n}", index=n, content=msgspec.structs.replace(DONE_CALL, call_id=f"c{n}", name=f"t{n}", files=f)
        )
        for n, f in enumerate(((IMAGE, WORDS), (), (PDF,)))
    ]
    sent = chat(HELLO, message("assistant", *calls), files=BYTES)["messages"][2:]
    assert [(m["role"], m.get("tool_call_id")) for m in sent] == [
        ("tool", "c0"),
        ("tool", "c1"),
        ("tool", "c2"),
        ("user", None),
    ]
    assert [m["content"] for m in sent[:3]] == [f"ok\n\n{INLINED}", "ok", "ok"]
    assert sent[3]["content"] == [
        {"type": "text", "text": "[files of the result of t0]"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG_BASE64}"}},
        {"type": "text", "text": "[files of the result of t2]"},
        {"type": "file", "file": {"filename": "f.pdf", "file_data": f"data:application/pdf;base64,{PDF_BASE64}"}},
    ]


def test_files_of_a_result_that_is_told_as_text() -> None:
    """They follow the text."""
    odd = message("assistant", ToolUse(name="f", input_json="[]", status=ToolStatus.ERROR, error="no", files=(IMAGE,)))
    told = "[result of a call of f, whose arguments were not a JSON object]\n[the call failed]\nno"
    assert result_of(anthropic(HELLO, odd, files=BYTES))[1:] == [{"type": "text", "text": told}, ANTHROPIC_IMAGE]
    assert [e["type"] for e in responses(HELLO, odd, files=BYTES)["input"][-1]["content"]] == [
        "input_text",
        "input_image",
    ]
    assert [e["type"] for e in chat(HELLO, odd, files=BYTES)["messages"][-1]["content"]] == ["text", "image_url"]


def test_the_whole_output_is_never_sent() -> None:
    """It is kept for people."""
    for body in (build(HELLO, answer(IMAGE), files=BYTES) for build in (anthropic, chat, responses)):
        assert "all of it" not in str(body)
        assert base64.b64encode(b"all of it").decode() not in str(body)


def marked(body: dict[str, Any]) -> list[str]:
    """Returns what ends in a cache mark."""
    found = [f"tool {tool['name']}" for tool in body.get("tools", []) if "cache_control" in tool]
    found += ["system" for block in body.get("system", []) if "cache_control" in block]
    for at, entry in enumerate(body["messages"]):
        for block_at, block in enumerate(entry["content"]):
            if "cache_control" in block:
                assert block["cache_control"] == CACHE_BREAKPOINT
                found.append(f"messages {at} {block_at}")
    return found


def test_marks_for_the_prompt_cache() -> None:
    """Ends of tools, of the system prompt and of the last two messages of the user."""
    tools = (ToolDefinition("a", "", ""), ToolDefinition("b", "", ""))
    assert marked(anthropic(*LOOP, system="kind", tools=tools)) == ["tool b", "system", "messages 0 0", "messages 2 1"]
    assert marked(anthropic(HELLO)) == ["messages 0 0"]
    longer = (*LOOP, message("assistant", Text("welcome")), message("user", Text("bye")))
    assert marked(anthropic(*longer)) == ["messages 2 1", "messages 4 0"]
