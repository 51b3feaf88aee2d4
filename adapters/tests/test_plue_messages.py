"""Messages as Plue's JSON."""

import json
from typing import Any

import pytest

from opencode.file.file_pb2 import FileRef
from opencode.message import content_pb2 as pb
from opencode.tool.tool_pb2 import ToolCallState
from turnwire_adapters.plue.messages import encoded, message_json, shown_files

DOLLAR = 10**12


def _message(*parts: pb.Part, **fields: object) -> pb.SessionMessage:
    fields.setdefault("type", pb.MESSAGE_TYPE_ASSISTANT)
    return pb.SessionMessage(message_id="m", session_id="s", parts=parts, **fields)  # type: ignore[arg-type]


def _written(message: pb.SessionMessage, contents: dict[str, bytes] | None = None) -> Any:
    return json.loads(encoded(message_json(message, contents)))


def test_parts_have_the_names_of_plue() -> None:
    """Each kind; results come behind all others, so that the index of an update stays right."""
    answered = ToolCallState(id="t1", name="read", status="success", input_json='{"n": 1.50}', output="ok")
    failed = ToolCallState(id="t2", name="read", status="error", input_json="{cut", error="no such file")
    message = _message(
        pb.Part(reasoning=pb.ReasoningContent(text="hm")),
        pb.Part(text=pb.TextContent(text="hello")),
        pb.Part(tool_use=answered),
        pb.Part(tool_use=failed),
        pb.Part(tool_use=ToolCallState(id="t3", name="wait", status="pending", input_json="{}")),
        pb.Part(refusal=pb.RefusalContent(text="no")),
    )
    shown = _written(message)
    assert {key: shown[key] for key in shown if key != "parts"} == {
        "id": "m", "message_id": "m", "session_id": "s", "role": "assistant", "created_at": 0, "updated_at": 0,
    }  # fmt: skip
    assert shown["parts"] == [
        {"type": "reasoning", "content": "hm"},
        {"type": "text", "content": "hello"},
        {"type": "tool_use", "tool_name": "read", "parameters": {"n": 1.5}, "tool_use_id": "t1"},
        {"type": "tool_use", "tool_name": "read", "parameters": "{cut", "tool_use_id": "t2"},
        {"type": "tool_use", "tool_name": "wait", "parameters": {}, "tool_use_id": "t3"},
        {"type": "text", "content": "no"},
        {"type": "tool_result", "tool_use_id": "t1", "result": "ok", "error": None},
        {"type": "tool_result", "tool_use_id": "t2", "result": None, "error": "no such file"},
    ]
    assert '"parameters":{"n": 1.50}' in encoded(message_json(message))


@pytest.mark.parametrize(
    "arguments", ["[" * 100_000, "[" * 100_000 + "]" * 100_000, "NaN", '{"n": 1e999}', '"\\ud800"', ""]
)
def test_parameters_that_few_can_read_are_text(arguments: str) -> None:
    """A model may write anything: the conversation can be listed all the same."""
    message = _message(pb.Part(tool_use=ToolCallState(id="t", name="n", status="pending", input_json=arguments)))
    assert _written(message)["parts"][0]["parameters"] == arguments


def test_results_of_their_own_are_tool_results() -> None:
    """By the id of the call here, or the provider's."""
    good = pb.ToolResultContent(call_id="c", tool_call_id="t", output="sun")
    bad = pb.ToolResultContent(call_id="c", output="broken", is_error=True)
    message = _message(pb.Part(tool_result=good), pb.Part(tool_result=bad), type=pb.MESSAGE_TYPE_TOOL_RESULT)
    shown = _written(message)
    assert shown["role"] == "user"
    assert shown["parts"] == [
        {"type": "tool_result", "tool_use_id": "t", "result": "sun", "error": None},
        {"type": "tool_result", "tool_use_id": "c", "result": None, "error": "broken"},
    ]


def test_files_have_path_content_and_language() -> None:
    """The language is absent when it is not known; without the bytes there is no content."""
    known = pb.Part(file=FileRef(sha256="1", path="src/a.py", filename="a.py", language="python"))
    unknown = pb.Part(file=FileRef(sha256="2", filename="notes"))
    message = _message(known, unknown, type=pb.MESSAGE_TYPE_USER)
    assert shown_files(message) == ["1", "2"]
    parts = _written(message, {"1": b"print()"})["parts"]
    assert parts == [
        {"type": "file", "path": "src/a.py", "content": "print()", "language": "python"},
        {"type": "file", "path": "notes", "content": ""},
    ]


def test_what_plue_does_not_know_keeps_its_place() -> None:
    """The parts behind it have the index that updates name."""
    message = _message(pb.Part(provider=pb.ProviderContent(kind="web_search_call")), pb.Part())
    assert _written(message)["parts"] == [{"type": "reasoning", "content": ""}] * 2


def test_cost_is_exact_below_a_cent() -> None:
    """1,234,567 tokens in at 3 USD a million and 89,012 out at 15 cost 5.038881 USD, as a number with these digits."""
    usage = pb.TokenUsage(input_tokens=1_234_567, output_tokens=89_012)
    run = pb.ModelRun(provider_id="mine", model_requested="m")
    message = _message(usage=usage, cost_pico_usd=5_038_881 * 10**6, model_run=run)
    written = encoded(message_json(message, prices={("mine", "m"): 15 * DOLLAR}))
    assert written.endswith(
        '"provider_info":{"provider_id":"mine","model_id":"m","request_id":null},'
        '"usage":{"input_tokens":1234567,"output_tokens":89012,"total_tokens":1323579},'
        '"cost":{"input_cost":3.703701,"output_cost":1.33518,"total_cost":5.038881}}'
    )
    assert encoded(message_json(message)).endswith('"cost":{"total_cost":5.038881}}')
    assert encoded(message_json(_message(cost_pico_usd=1))).endswith('"cost":{"total_cost":0.000000000001}}')


def test_times_are_milliseconds() -> None:
    """Since 1970."""
    message = _message()
    message.create_time.FromMilliseconds(1_769_900_000_123)
    message.update_time.FromMilliseconds(1_769_900_000_456)
    shown = _written(message)
    assert (shown["created_at"], shown["updated_at"]) == (1_769_900_000_123, 1_769_900_000_456)


def test_results_are_json_where_tools_write_it() -> None:
    """Digit by digit; text stays text, a number in it too."""
    for output, result in (('{"n": 1.50}', {"n": 1.5}), ("[1]", [1]), ("7", "7"), ("{cut", "{cut"), ("sun", "sun")):
        call = ToolCallState(id="t", name="n", status="success", input_json="{}", output=output)
        assert _written(_message(pb.Part(tool_use=call)))["parts"][1]["result"] == result


def test_a_text_cannot_pass_for_json() -> None:
    """JSON that is written digit by digit is marked with what nobody knows."""
    odd = '"x\\", "parts": []'
    assert _written(_message(pb.Part(text=pb.TextContent(text=odd))))["parts"][0]["content"] == odd


def test_an_unknown_price_gives_usage_and_no_cost() -> None:
    """A free answer costs 0; what was not reported is not there."""
    usage = pb.TokenUsage(
        input_tokens=1, cache_read_tokens=2, cache_write_tokens=3, output_tokens=4, reasoning_tokens=5
    )
    shown = _written(_message(usage=usage))
    assert shown["usage"] == {"input_tokens": 6, "output_tokens": 9, "total_tokens": 15}
    assert "cost" not in shown
    assert _written(_message(cost_pico_usd=0))["cost"] == {"total_cost": 0}
    assert "usage" not in _written(_message())
