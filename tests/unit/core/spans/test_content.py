"""Prompts and answers as attributes."""

import json

from tests.support.fakes.domain_values import NOW
from turnwire.core.spans.content import (
    MAX_ATTRIBUTE_BYTES,
    MAX_TEXT_CHARS,
    input_content,
    output_content,
    shortened,
)
from turnwire.domain.conversation.messages import (
    Content,
    File,
    FinishReason,
    Message,
    MessageStatus,
    MessageType,
    Part,
    ProviderContent,
    Reasoning,
    Text,
    ToolStatus,
    ToolUse,
)
from turnwire.ports.provider import ProviderRequest


def said(kind: MessageType, *contents: Content) -> Message:
    """Returns a message with these parts."""
    return Message(
        message_id="msg_1",
        session_id="ses_1",
        type=kind,
        status=MessageStatus.COMPLETE,
        created_at=NOW,
        updated_at=NOW,
        parts=tuple(Part(part_id=f"prt_{index}", index=index, content=c) for index, c in enumerate(contents)),
    )


def test_a_request_has_the_forms_of_the_conventions() -> None:
    """Results of calls follow their message; files have a type but no content; sealed content is left out."""
    picture = File(sha256="0" * 64, size_bytes=3, mime="image/png", filename="secret.png")
    call = ToolUse(name="look", call_id="c1", input_json='{"at":1}', status=ToolStatus.SUCCESS, output="seen")
    request = ProviderRequest(
        model_id="m",
        system="be kind",
        messages=(
            said(MessageType.USER, Text("what is this?"), picture),
            said(MessageType.ASSISTANT, Reasoning("hm"), ProviderContent("sealed"), call),
        ),
    )
    found = input_content(request)
    assert json.loads(str(found["gen_ai.system_instructions"])) == [{"type": "text", "content": "be kind"}]
    assert json.loads(str(found["gen_ai.input.messages"])) == [
        {
            "role": "user",
            "parts": [
                {"type": "text", "content": "what is this?"},
                {"type": "file", "modality": "image", "mime_type": "image/png", "file_id": ""},
            ],
        },
        {
            "role": "assistant",
            "parts": [
                {"type": "reasoning", "content": "hm"},
                {"type": "tool_call", "id": "c1", "name": "look", "arguments": '{"at":1}'},
            ],
        },
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "seen"}]},
    ]


def test_a_long_conversation_is_cut_between_messages() -> None:
    """The newest stay, and the attribute is still JSON."""
    messages = tuple(said(MessageType.USER, Text(f"{number} " + "x" * 1000)) for number in range(200))
    text = str(input_content(ProviderRequest(model_id="m", system="", messages=messages))["gen_ai.input.messages"])
    kept = json.loads(text)
    assert MAX_ATTRIBUTE_BYTES * 0.9 < len(text) <= MAX_ATTRIBUTE_BYTES + 2
    assert kept[-1]["parts"][0]["content"].startswith("199 ")
    assert kept[0]["parts"][0]["content"].startswith(f"{200 - len(kept)} ")


def test_an_answer_has_its_finish_reason() -> None:
    """It is one message."""
    found = output_content(said(MessageType.ASSISTANT, Text("hi")), FinishReason.STOP)
    assert json.loads(str(found["gen_ai.output.messages"])) == [
        {"role": "assistant", "parts": [{"type": "text", "content": "hi"}], "finish_reason": "stop"}
    ]


def test_long_texts_are_cut() -> None:
    """With their length behind them."""
    assert shortened("x" * MAX_TEXT_CHARS) == "x" * MAX_TEXT_CHARS
    assert shortened("x" * (MAX_TEXT_CHARS + 1)) == "x" * MAX_TEXT_CHARS + f"... [{MAX_TEXT_CHARS + 1} characters]"
