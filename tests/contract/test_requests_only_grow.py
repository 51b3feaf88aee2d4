"""The next request of a conversation repeats this one word by word: prompt caches and signed reasoning stand on it."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.models.wire_requests import BUILDERS, Body, body_of, normal_run, only_with, wire_messages
from tests.support.oracles.histories import FILES, MODELS, answers, histories, user_messages
from turnwire.domain.conversation.messages import Message, MessageType
from turnwire.ports.provider import ProviderRequest
from turnwire.providers.request.reader import GO_ON


def steps_of(dialect: str, body: Body, next_message: Message) -> list[Any]:
    """Returns what has to stay as it is, in order, without what may go when the conversation goes on."""
    steps = taken_apart(dialect, body)
    if dialect == "anthropic":
        steps = steps[: first_open(steps)]
    if next_message.type is MessageType.ASSISTANT:
        return steps
    made_to_say = (("user", {"type": "text", "text": GO_ON}), {"role": "user", "content": GO_ON})
    return steps[:-1] if steps and steps[-1] in made_to_say else steps


def taken_apart(dialect: str, body: Body) -> list[Any]:
    """Returns the messages or items without reasoning that a server wants only for a time.

    Anthropic's messages become blocks with their roles, since what the user adds joins the user's last message.
    """
    wire = wire_messages(body)
    if dialect == "anthropic":
        return [(message["role"], block) for message in wire for block in message["content"]]
    return [{name: value for name, value in message.items() if name != "reasoning_content"} for message in wire]


def first_open(pairs: list[tuple[str, Body]]) -> int:
    """Returns where the first call of a hosted tool stands that has no result, with the thinking before it."""
    answered = {block.get("tool_use_id") for _, block in pairs}
    for at, (_, block) in enumerate(pairs):
        if block["type"] == "server_tool_use" and block["id"] not in answered:
            said_before = itertools.takewhile(lambda pair: "thinking" in pair[1]["type"], reversed(pairs[:at]))
            return at - len(list(said_before))
    return len(pairs)


@pytest.mark.parametrize("dialect", BUILDERS)
@given(data=st.data(), model=st.sampled_from(MODELS), system=st.sampled_from(("", "be brief")))
@normal_run
def test_the_next_request_begins_with_this_one(dialect: str, data: st.DataObject, model: str, system: str) -> None:
    """After each message of a conversation with one model, whatever it is, the request goes on where it ended before.

    These alone may be different, all at the very end of the request before:

    - the words that the user is made to say (`GO_ON`), when the user speaks instead of the model;
    - for Anthropic, an open call of a tool that the provider runs, in the last answer, with what stands behind it, and
      thinking and `GO_ON` directly before it: when nothing came of the call, the API refuses it from then on;
    - `reasoning_content`, which servers that want it want in the running turn, and later in turns with calls alone.
    """
    within = only_with(dialect, "p", model)
    start = data.draw(histories(within))
    history = (*start, data.draw(user_messages(within, words="a question")), data.draw(answers(within)))
    changed = frozenset(message.message_id for message in start if data.draw(st.booleans()))

    def built(messages: tuple[Message, ...]) -> Body:
        request = ProviderRequest(model_id=model, system=system, messages=messages, files=FILES, prefix_changed=changed)
        return body_of(BUILDERS[dialect](request, "p"))

    # Before anybody has spoken, system messages join the system prompt.
    first = next((at for at, message in enumerate(history) if message.type not in ("system", "host")), 0)
    bodies = [built(history[:end]) for end in range(first, len(history) + 1)]
    for (before, after), next_message in zip(itertools.pairwise(bodies), history[first:], strict=True):
        said = steps_of(dialect, before, next_message)
        assert taken_apart(dialect, after)[: len(said)] == said
