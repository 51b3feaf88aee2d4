"""Every request that is made of any history is one that its API takes, and says nothing of what the host wrote."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.domain_values import make_turn
from tests.support.histories import (
    FILES,
    HOST_SECRET,
    MODELS,
    PROVIDERS,
    Conversation,
    answers,
    histories,
    user_messages,
)
from tests.support.rules import check_anthropic, check_chat, check_responses
from turnwire.core.context import assemble
from turnwire.domain.messages import FinishReason, Message, MessageType, ModelRef
from turnwire.domain.sessions import GenerationOptions, ToolDefinition, Turn
from turnwire.ports.provider import ProviderRequest
from turnwire.providers.anthropic_request import build_anthropic_request
from turnwire.providers.openai_chat_request import build_chat_request, dialect_of
from turnwire.providers.openai_responses_request import build_responses_request

Body = dict[str, Any]
Builder = Callable[[ProviderRequest, str], Body]

BUILDERS: dict[str, Builder] = {
    "anthropic": lambda request, provider: build_anthropic_request(request, provider, 1000).body,
    "chat": lambda request, provider: build_chat_request(request, provider, dialect_of("", True, False)).body,
    "deepseek": lambda request, provider: (
        build_chat_request(request, provider, dialect_of("http://d", True, True)).body
    ),
    "mistral": lambda request, provider: (
        build_chat_request(request, provider, dialect_of("https://api.mistral.ai/v1", False, False)).body
    ),
    "responses": lambda request, provider: build_responses_request(request, provider, "auto").body,
}

EXTENDING = ("anthropic", "chat", "mistral", "responses")
"""Those whose requests only grow: DeepSeek wants its reasoning back in a tool loop, and not after it."""

normal_run = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@st.composite
def turns(draw: st.DrawFn) -> Turn:
    """Draws how a turn asks."""
    names = draw(st.lists(st.sampled_from(("read", "fs.read", "fs_read", "", "n" * 100, "n" * 101)), unique=True))
    schema = st.sampled_from(("", "{}", '{"type":"object"}', '{"properties":{"a":{}}}'))
    return make_turn(
        model=ModelRef(draw(st.sampled_from(PROVIDERS)), draw(st.sampled_from(MODELS))),
        tools=tuple(ToolDefinition(name, "", draw(schema)) for name in names),
        options=GenerationOptions(
            max_output_tokens=draw(st.sampled_from((None, 1, 100_000))),
            reasoning_effort=draw(st.sampled_from(("", "none", "minimal", "low", "max"))),
            temperature=draw(st.sampled_from((None, 0.5))),
        ),
    )


def conversation(api: str, turn: Turn) -> Conversation:
    """Returns a conversation mostly with the API, provider and model of the turn."""
    name = {"anthropic": "anthropic", "responses": "openai_responses"}.get(api, "openai_chat")
    return Conversation(name, turn.model.provider_id, turn.model.model_id)


systems = st.sampled_from(("", " \n", "be brief"))


def built(api: str, history: Sequence[Message], turn: Turn, system: str = "") -> Body:
    """Returns the body of the turn's next request, as the turn runner makes it."""
    request = msgspec.structs.replace(assemble(history, turn, system), files=FILES)
    return BUILDERS[api](request, turn.model.provider_id)


def violations(api: str, body: Body, history: Sequence[Message], turn: Turn) -> list[str]:
    """Returns the rules that the body breaks."""
    if api == "responses":
        return check_responses(body)
    if api != "anthropic":
        return check_chat(body, mistral=api == "mistral")
    sent = assemble(history, turn, "").messages
    paused = bool(sent) and sent[-1].type is MessageType.ASSISTANT and sent[-1].finish_reason is FinishReason.PAUSED
    return check_anthropic(body, continues_pause=paused)


def wire_messages(body: Body) -> list[Body]:
    """Returns the messages part, each message with its content as a list, without cache breakpoints."""
    found = []
    for entry in body.get("messages", body.get("input")):
        content = entry.get("content")
        listed = (
            [{k: v for k, v in block.items() if k != "cache_control"} for block in content]
            if isinstance(content, list)
            else [content]
        )
        found.append({**entry, "content": listed})
    return found


@pytest.mark.parametrize("api", BUILDERS)
@given(data=st.data(), turn=turns(), system=systems)
@normal_run
def test_no_history_makes_a_request_that_is_refused(api: str, data: st.DataObject, turn: Turn, system: str) -> None:
    """Whatever a session holds, its next request keeps every rule, never varies, and hides the host's words."""
    history = data.draw(histories(conversation(api, turn)))
    body = built(api, history, turn, system)
    assert violations(api, body, history, turn) == []
    text = json.dumps(body, ensure_ascii=False, allow_nan=False)
    assert HOST_SECRET not in text
    assert json.dumps(built(api, history, turn, system), ensure_ascii=False) == text


@pytest.mark.parametrize("api", EXTENDING)
@given(data=st.data(), turn=turns())
@normal_run
def test_the_next_request_extends_this_one(api: str, data: st.DataObject, turn: Turn) -> None:
    """After an answer and another question, all messages are as before; the last one may have grown at its end."""
    within = conversation(api, turn)
    history = (*data.draw(histories(within)), data.draw(user_messages(within, words="a question")))
    later = (*history, data.draw(answers(within)), data.draw(user_messages(within, words="another")))
    before, after = (wire_messages(built(api, messages, turn)) for messages in (history, later))
    assert after[: len(before) - 1] == before[:-1]
    last, grown = before[-1], after[len(before) - 1]
    assert {**grown, "content": grown["content"][: len(last["content"])]} == last


@pytest.mark.parametrize("api", BUILDERS)
@given(data=st.data(), turn=turns(), system=systems)
@normal_run
def test_the_newest_question_is_always_sent(api: str, data: st.DataObject, turn: Turn, system: str) -> None:
    """It is the last thing that the model reads, whatever of the rest can be sent."""
    within = conversation(api, turn)
    history = (*data.draw(histories(within)), data.draw(user_messages(within, words="the newest")))
    body = built(api, history, turn, system)
    assert violations(api, body, history, turn) == []
    last = body.get("messages", body.get("input"))[-1]
    assert last["role"] == "user"
    assert "the newest" in json.dumps(last["content"])
