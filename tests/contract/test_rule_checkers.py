"""The checkers of the APIs' rules find what they are for: a checker that finds nothing would let everything pass."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.models.wire_requests import body_of
from tests.support.oracles.golden_history import GOLDEN
from tests.support.rules import check_anthropic, check_chat, check_responses

Body = dict[str, Any]

MARK = {"cache_control": {"type": "ephemeral"}}


def blocks_of(body: Body, kind: str) -> list[Body]:
    """Returns Anthropic's blocks of one type."""
    return [block for message in body["messages"] for block in message["content"] if block["type"] == kind]


def outputs_of(body: Body) -> list[Body]:
    """Returns outputs of Responses that hold more than text."""
    return [item for item in body["input"] if isinstance(item.get("output"), list)]


def _mark_thinking(body: Body) -> None:
    del body["tools"][-1]["cache_control"]
    blocks_of(body, "thinking")[0].update(MARK)


def _mark_a_fifth(body: Body) -> None:
    blocks_of(body, "tool_use")[0].update(MARK)


def _mark_inside(body: Body) -> None:
    del body["tools"][-1]["cache_control"]
    blocks_of(body, "tool_result")[0]["content"][0].update(MARK)


def _image_in_error(body: Body) -> None:
    blocks_of(body, "tool_result")[0]["is_error"] = True


def _thinking_in_result(body: Body) -> None:
    blocks_of(body, "tool_result")[0]["content"].append(blocks_of(body, "thinking")[0])


def _blank_in_result(body: Body) -> None:
    blocks_of(body, "tool_result")[0]["content"].append({"type": "text", "text": " "})


def _no_content(body: Body) -> None:
    blocks_of(body, "tool_result")[0]["content"] = []


@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        (_mark_thinking, "a cache mark on 'thinking'"),
        (_mark_a_fifth, "more than 4"),
        (_mark_inside, "inside of a block"),
        (_image_in_error, "image in the result of a call that failed"),
        (_thinking_in_result, "'thinking' in a result"),
        (_blank_in_result, "a blank text"),
        (_no_content, "an empty result"),
    ],
)
def test_rules_of_anthropic(spoil: Callable[[Body], None], found: str) -> None:
    """Marks for the prompt cache and contents of results."""
    body = copy.deepcopy(body_of(GOLDEN["anthropic"]()))
    spoil(body)
    (violation,) = check_anthropic(body)
    assert found in violation


@pytest.mark.parametrize(
    ("output", "found"),
    [
        ([], "an empty output"),
        (" ", "a blank output"),
        ([{"type": "input_text", "text": ""}], "a blank text"),
        ([{"type": "output_text", "text": "x"}], "'output_text' in a message of role user"),
        ([{"type": "input_image", "image_url": "data:image/png;base64,AAAA"}], "is not image/png"),
    ],
)
def test_rules_of_responses(output: object, found: str) -> None:
    """Outputs of functions."""
    body = copy.deepcopy(body_of(GOLDEN["openai_responses"]()))
    outputs_of(body)[0]["output"] = output
    (violation,) = check_responses(body)
    assert found in violation


def test_rules_of_chat() -> None:
    """A tool says text only."""
    body = copy.deepcopy(body_of(GOLDEN["openai_chat"]()))
    tool = next(message for message in body["messages"] if message["role"] == "tool")
    tool["content"] = [{"type": "text", "text": "x"}]
    (violation,) = check_chat(body)
    assert "content is no text" in violation
