"""What of a history cannot be sent as it is, and would end every later request if it were."""

import json
import struct
from typing import Any

import msgspec
import pytest

from tests.support.models.provider_requests import (
    DONE_CALL,
    HELLO,
    PNG,
    anthropic,
    chat,
    message,
    responses,
    without_breakpoints,
)
from tests.support.rules import check_anthropic
from turnwire.domain.conversation.messages import (
    File,
    FinishReason,
    Message,
    Part,
    ProviderContent,
    Reasoning,
    Text,
    ToolResult,
    ToolStatus,
    ToolUse,
)
from turnwire.domain.conversation.turns import ToolDefinition
from turnwire.providers.request.image_pixels import longest_side

GO_ON = {"role": "user", "content": [{"type": "text", "text": "(conversation continues)"}]}
USER = message("user", Text("next"))


def state(api: str, **fields: Any) -> str:
    """Returns provider state of model m."""
    return json.dumps({"api": api, "model": "m", **fields})


def answer(*contents: Any, reason: FinishReason = FinishReason.STOP) -> Message:
    """Returns an answer of these contents; a pair is a content with its state."""
    pairs = [item if isinstance(item, tuple) else (item, None) for item in contents]
    parts = [
        Part(part_id=f"p{index}", index=index, content=content, provider_state=sealed)
        for index, (content, sealed) in enumerate(pairs)
    ]
    return msgspec.structs.replace(message("assistant", *parts), finish_reason=reason)


def block(**fields: Any) -> tuple[ProviderContent, str]:
    """Returns a block that Anthropic's hosted tools made."""
    return ProviderContent(fields["type"]), state("anthropic", block=fields)


THOUGHT = (Reasoning("hm"), state("anthropic", signature="s"))
SEARCH = block(type="server_tool_use", id="s1", name="web_search", input={})
FOUND = block(type="web_search_tool_result", tool_use_id="s1", content=[])
CUT = ToolUse(name="f", call_id="cut", input_json='{"n":', status=ToolStatus.CANCELLED)


def kinds(wire: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """Returns role and types of the blocks of each message for Anthropic."""
    return [(entry["role"], [item["type"] for item in entry["content"]]) for entry in wire["messages"]]


@pytest.mark.parametrize(
    "arguments",
    [
        '{"n":',
        "[1]",
        "null",
        "free text",
        '{"n":NaN}',
        '{"n":1e999}',
        '{"s":"\\ud800"}',
        '{"a":' * 300 + "1" + "}" * 300,
        '{"a":' + "[" * 100_000,
    ],
)
def test_calls_without_an_object_are_told_as_text(arguments: str) -> None:
    """No API takes such arguments back, some encoders fail on them; the model still learns what became of its call."""
    history = (HELLO, answer(ToolUse(name="f", call_id="c", input_json=arguments, status=ToolStatus.ERROR, error="no")))
    told = "[result of a call of f, whose arguments were not a JSON object]\n[the call failed]\nno"
    assert chat(*history)["messages"][1:] == [{"role": "user", "content": told}]
    assert responses(*history)["input"][1:] == [{"role": "user", "content": [{"type": "input_text", "text": told}]}]
    assert without_breakpoints(anthropic(*history)) == [
        {"role": "user", "content": [{"type": "text", "text": "hello"}, {"type": "text", "text": told}]}
    ]


def test_state_that_cannot_be_encoded_is_dropped() -> None:
    """Half a surrogate pair in a quotation would make the SDK fail on every later request."""
    quoted = (Text("hi"), state("anthropic", citations=[{"cited_text": "\ud83d"}]))
    assert anthropic(HELLO, answer(quoted), USER)["messages"][1]["content"] == [{"type": "text", "text": "hi"}]


def test_an_answer_is_not_the_last_message_for_anthropic() -> None:
    """Newer models refuse it, so the user is made to speak."""
    wire = without_breakpoints(anthropic(HELLO, answer(Text("so far "))))
    assert wire[1:] == [{"role": "assistant", "content": [{"type": "text", "text": "so far "}]}, GO_ON]


def test_a_paused_answer_is_the_last_message() -> None:
    """The provider goes on with it: its hosted call may still be open."""
    paused = answer(Text("I look"), SEARCH, reason=FinishReason.PAUSED)
    assert kinds(anthropic(HELLO, paused))[-1] == ("assistant", ["text", "server_tool_use"])
    for before in ((HELLO,), (HELLO, answer(Text("hi")), USER)):
        assert kinds(anthropic(*before, paused, answer(FOUND, Text("found")), USER))[len(before)] == (
            "assistant",
            ["text", "server_tool_use", "web_search_tool_result", "text"],
        )


@pytest.mark.parametrize("half", [SEARCH, FOUND])
def test_half_a_hosted_call_is_left_out(half: tuple[ProviderContent, str]) -> None:
    """A pause that was never continued, or a result whose call was interrupted, is refused once the user has spoken."""
    paused = answer(Text("I look"), half, reason=FinishReason.PAUSED)
    assert kinds(anthropic(HELLO, paused, USER))[1] == ("assistant", ["text"])


def test_a_hosted_call_waits_for_the_clients_tools() -> None:
    """Beside a call of the client's tools its result comes only with the next answer."""
    both = answer(SEARCH, DONE_CALL, reason=FinishReason.TOOL_USE)
    assert kinds(anthropic(HELLO, both))[1] == ("assistant", ["server_tool_use", "tool_use"])
    assert kinds(anthropic(HELLO, both, USER))[1] == ("assistant", ["tool_use"])


def test_thinking_is_not_the_last_block() -> None:
    """Anthropic refuses it; so it stands when the call that it led to was cut."""
    cut = answer(Text("well"), THOUGHT, CUT, reason=FinishReason.LENGTH)
    assert kinds(anthropic(HELLO, cut, USER))[1] == ("assistant", ["text"])
    assert kinds(anthropic(HELLO, answer(THOUGHT, CUT), USER)) == [("user", ["text", "text"])]


def rs(number: int) -> tuple[Reasoning, str]:
    """Returns a sealed reasoning item."""
    item = {"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": "gAAA"}
    return Reasoning(""), state("openai_responses", item=item)


@pytest.mark.parametrize(
    ("contents", "sent"),
    [
        ((rs(1), Text("hi")), ["rs_1", "hi"]),
        ((rs(1), DONE_CALL, rs(2), Text("hi")), ["rs_1", "c1", "rs_2", "hi", "c1"]),
        ((rs(1), CUT, Text("hi")), ["hi"]),
        ((rs(1), rs(2), Text("hi")), ["rs_2", "hi"]),
        ((Text("hi"), rs(1), CUT), ["hi"]),
    ],
)
def test_reasoning_items_go_only_with_what_followed_them(contents: tuple[Any, ...], sent: list[str]) -> None:
    """Alone, before another one or before something else, OpenAI refuses them."""
    items = responses(HELLO, answer(*contents), model_id="m")["input"][1:]
    assert [item.get("id") or item.get("call_id") or item["content"] for item in items] == sent


def test_sealed_reasoning_is_asked_for_where_it_is_sent() -> None:
    """Also of a model whose name does not tell that it reasons, when no effort was given this time."""
    assert responses(HELLO, answer(rs(1), Text("hi")), USER)["include"] == ["reasoning.encrypted_content"]
    assert "include" not in responses(HELLO, answer(Text("hi")), USER)


@pytest.mark.parametrize("history", [(), (message("system", Text("be brief")),)])
def test_somebody_always_speaks(history: tuple[Message, ...]) -> None:
    """A request without any message is refused."""
    assert without_breakpoints(anthropic(*history)) == [GO_ON]
    assert chat(*history)["messages"][-1] == {"role": "user", "content": "(conversation continues)"}
    assert responses(*history)["input"] == [{"role": "user", "content": "(conversation continues)"}]


def test_a_result_belongs_to_a_call_before_it() -> None:
    """Some servers number the calls of every answer alike: a later one must not make an earlier text disappear."""
    stray = message("tool_result", ToolResult(call_id="c1", output="42"))
    before = (HELLO, stray)
    after = (*before, answer(DONE_CALL), USER)
    assert chat(*after)["messages"][:2] == chat(*before)["messages"]
    assert responses(*after)["input"][:2] == responses(*before)["input"]
    assert without_breakpoints(anthropic(*after))[0] == without_breakpoints(anthropic(*before))[0]


@pytest.mark.parametrize(
    ("mime", "data", "sent"),
    [
        ("image/png", PNG, "image/png"),
        ("image/png", b"\xff\xd8\xff", "image/jpeg"),
        ("image/jpg", b"\xff\xd8\xff", "image/jpeg"),
        ("image/webp", b"GIF89a", "image/gif"),
        ("image/gif", b"RIFF0000WEBP", "image/webp"),
        ("image/png", b"", ""),
        ("image/png", b"<html>", ""),
        ("application/pdf", b"<html>", ""),
        ("application/octet-stream", PNG, ""),
    ],
)
def test_files_are_what_their_bytes_say(mime: str, data: bytes, sent: str) -> None:
    """The APIs look at the bytes and refuse an image of another type, a broken one or an empty one, for ever after."""
    user = message("user", File(sha256="h", size_bytes=1, mime=mime, filename="f"))
    content = anthropic(user, files={"h": data})["messages"][0]["content"][0]
    assert content.get("source", {}).get("media_type", "") == sent
    assert (f"data:{sent};" in str(chat(user, files={"h": data}))) is bool(sent)
    assert (f"data:{sent};" in str(responses(user, files={"h": data}))) is bool(sent)


@pytest.mark.parametrize(("name", "title"), [(" ", None), ("x" * 600, "x" * 500), ("a.pdf", "a.pdf")])
def test_titles_of_documents(name: str, title: str | None) -> None:
    """Anthropic wants 1 to 500 characters or none."""
    user = message("user", File(sha256="h", size_bytes=1, mime="application/pdf", filename=name))
    document = anthropic(user, files={"h": b"%PDF-1"})["messages"][0]["content"][0]
    assert document.get("title") == title
    assert chat(user, files={"h": b"%PDF-1"})["messages"][0]["content"][0]["file"]["filename"].strip()


def test_schemas_say_that_arguments_are_an_object() -> None:
    """A client may leave it out, the APIs demand it."""
    tool = ToolDefinition("f", "", '{"required":["a"]}')
    schema = {"type": "object", "properties": {}, "required": ["a"]}
    assert anthropic(HELLO, tools=(tool,))["tools"][0]["input_schema"] == schema
    assert chat(HELLO, tools=(tool,))["tools"][0]["function"]["parameters"] == schema
    assert responses(HELLO, tools=(tool,))["tools"][0]["parameters"] == schema


@pytest.mark.parametrize("contents", [(DONE_CALL,), (Reasoning(""), DONE_CALL), (Reasoning(" \n"), DONE_CALL)])
def test_calls_without_reasoning_get_a_stand_in(contents: tuple[Any, ...]) -> None:
    """Servers that want reasoning refuse calls without the field or with an empty one, as another model leaves them."""
    new = answer(*contents)
    assert chat(HELLO, new, reasoning=True)["messages"][1]["reasoning_content"] == " "
    assert "reasoning_content" not in chat(HELLO, new)["messages"][1]


@pytest.mark.parametrize("extra", [0, 1])
def test_an_image_that_is_too_large_for_anthropic_is_named(extra: int) -> None:
    """It is refused, and so were all later requests; others take it."""
    data = PNG.ljust(3_932_160 + extra, b"\0")
    user = message("user", File(sha256="h", size_bytes=len(data), mime="image/png", filename="me.png"))
    body = anthropic(user, files={"h": data})
    assert check_anthropic(body) == []
    [block] = body["messages"][0]["content"]
    assert (block["type"], "me.png" in str(block.get("text"))) == (("text", True) if extra else ("image", False))
    assert "image_url" in str(chat(user, files={"h": data}))


PIXELS = [
    (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 10, 8001), 8001),
    (b"GIF89a" + struct.pack("<HH", 8001, 10), 8001),
    (b"\xff\xd8\xff\xe0\0\x04ab\xff\xc2\0\x11\x08" + struct.pack(">HH", 8001, 20), 8001),
    (b"RIFF0000WEBPVP8 0000\0\0\0\x9d\x01\x2a" + struct.pack("<HH", 8001, 30), 8001),
    (b"RIFF0000WEBPVP8L0000\x2f" + struct.pack("<I", 8000 | 9 << 14), 8001),
    (b"RIFF0000WEBPVP8X0000\0\0\0\0" + (8000).to_bytes(3, "little") + b"\x01\0\0", 8001),
    (b"\x89PNG", 0),
    (b"\xff\xd8\xff", 0),
    (b"RIFF0000WEBP", 0),
    (b"", 0),
]


@pytest.mark.parametrize(("data", "pixels"), PIXELS)
def test_pixels_of_images(data: bytes, pixels: int) -> None:
    """By the first bytes of each kind that is sent; one with too many is not sent to Anthropic."""
    assert longest_side(data) == pixels
    user = message("user", File(sha256="h", size_bytes=1, mime="image/png", filename="f"))
    [block] = anthropic(user, files={"h": data})["messages"][0]["content"]
    assert (block["type"] == "image") is (data != b"" and not pixels)
