"""Every request that is made of any history is one that its API takes, and says nothing of what the host wrote."""

import json
from collections.abc import Callable, Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fakes.domain_values import make_turn
from tests.support.models.wire_requests import BUILDERS, body_of, mostly_with, normal_run, violations
from tests.support.oracles.histories import (
    FILES,
    HOST_SECRET,
    MODELS,
    PROVIDERS,
    WHOLE_OUTPUT,
    histories,
    user_messages,
)
from tests.support.oracles.whole_requests import assemble
from turnwire.domain.conversation.messages import Message, ModelRef
from turnwire.domain.conversation.turns import GenerationOptions, ToolDefinition, Turn
from turnwire.ports.provider import ProviderRequest


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
            top_p=draw(st.sampled_from((None, 0.9))),
        ),
    )


systems = st.sampled_from(("", " \n", "be brief"))


def asked(history: Sequence[Message], turn: Turn, system: str = "") -> ProviderRequest:
    """Returns the turn's next request, as the turn runner makes it."""
    return msgspec.structs.replace(assemble(history, turn, system).request, files=FILES)


def untouched(history: Sequence[Message], turn: Turn, system: str) -> ProviderRequest:
    """Returns the request with all that is stored, as if the core had left out nothing."""
    return ProviderRequest(
        model_id=turn.model.model_id,
        system=system,
        messages=tuple(history),
        tools=turn.tools,
        options=turn.options,
        files=FILES,
    )


@pytest.mark.parametrize("make", [asked, untouched])
@pytest.mark.parametrize("dialect", BUILDERS)
@given(data=st.data(), turn=turns(), system=systems)
@normal_run
def test_no_history_makes_a_request_that_is_refused(
    make: Callable[[Sequence[Message], Turn, str], ProviderRequest],
    dialect: str,
    data: st.DataObject,
    turn: Turn,
    system: str,
) -> None:
    """The next request of any session keeps every rule, never varies, and hides the host's words."""
    model = turn.model
    request = make(data.draw(histories(mostly_with(dialect, model.provider_id, model.model_id))), turn, system)
    prepared = BUILDERS[dialect](request, model.provider_id)
    assert violations(dialect, body_of(prepared), request) == []
    text = json.dumps(body_of(prepared), ensure_ascii=False, allow_nan=False)
    assert HOST_SECRET not in text
    assert WHOLE_OUTPUT.decode() not in text
    again = BUILDERS[dialect](request, model.provider_id)
    assert json.dumps(body_of(again), ensure_ascii=False) == text
    assert again.repairs == prepared.repairs


@pytest.mark.parametrize("dialect", BUILDERS)
@given(data=st.data(), turn=turns(), system=systems)
@normal_run
def test_the_newest_question_is_always_sent(dialect: str, data: st.DataObject, turn: Turn, system: str) -> None:
    """It is the last thing that the model reads, whatever of the rest can be sent."""
    within = mostly_with(dialect, turn.model.provider_id, turn.model.model_id)
    history = (*data.draw(histories(within)), data.draw(user_messages(within, words="the newest")))
    request = asked(history, turn, system)
    body = body_of(BUILDERS[dialect](request, turn.model.provider_id))
    assert violations(dialect, body, request) == []
    last = body.get("messages", body.get("input"))[-1]
    assert last["role"] == "user"
    assert "the newest" in json.dumps(last["content"])
