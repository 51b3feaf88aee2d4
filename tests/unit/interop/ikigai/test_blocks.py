"""Constructors that know no provider."""

import ast
import json
from pathlib import Path

import turnwire.interop.ikigai as ikigai
from turnwire.domain.conversation.messages import MessageType, ProviderContent, Reasoning, Text, ToolResult, ToolUse
from turnwire.interop.ikigai.blocks import metadata_json


def test_each_block_has_its_content() -> None:
    """Text, call, result, thinking with its signature, and thinking that only its provider can read."""
    assert ikigai.text("hi").content == Text("hi")
    assert ikigai.tool_call("c", "bash", '{"a": 1}').content == ToolUse(name="bash", call_id="c", input_json='{"a": 1}')
    assert ikigai.tool_result("c", "out", True).content == ToolResult(call_id="c", output="out", is_error=True)
    assert (ikigai.thinking("hm", "sig").content, ikigai.thinking("hm", "sig").seal) == (
        Reasoning("hm"), {"signature": "sig"},
    )  # fmt: skip
    assert ikigai.thinking("hm").seal == {}
    redacted = ikigai.redacted_thinking("data")
    assert redacted.content == ProviderContent("redacted_thinking")
    assert redacted.seal == {"block": {"type": "redacted_thinking", "data": "data"}}


def test_each_message_has_its_role() -> None:
    """And its blocks in order; metadata travels as JSON."""
    hello, call = ikigai.text("hello"), ikigai.tool_call("c", "bash", "{}")
    assert ikigai.user_message(hello).type is MessageType.USER
    answer = ikigai.assistant_message(hello, call, provider_metadata={"id": "ü", "n": 1})
    assert (answer.type, answer.blocks) == (MessageType.ASSISTANT, (hello, call))
    assert json.loads(metadata_json(answer)) == {"provider_metadata": {"id": "ü", "n": 1}}
    result = ikigai.tool_message(ikigai.tool_result("c", "out"))
    assert (result.type, metadata_json(result)) == (MessageType.TOOL_RESULT, "")


def test_no_provider_is_known() -> None:
    """Neither by an import nor by a name."""
    for module in Path(str(ikigai.__file__)).parent.glob("*.py"):
        tree = ast.parse(module.read_bytes())
        imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert not any(".providers" in name for name in imported), module
