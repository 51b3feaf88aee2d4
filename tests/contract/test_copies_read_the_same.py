"""A model is sent the same of a copy as of its original, whatever the conversation holds."""

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fakes.domain_values import NOW, make_session, make_turn
from tests.support.models.wire_requests import BUILDERS, body_of, mostly_with, normal_run
from tests.support.oracles.histories import FILES, MODELS, histories
from tests.support.oracles.whole_requests import assemble, prefix_changed, prefix_of
from turnwire.core.use_cases.forks import copy_conversation
from turnwire.domain.conversation.messages import Message, MessageStatus, ModelRef
from turnwire.ports.conversations import Conversation
from turnwire.ports.provider import ProviderRequest


def assembled(history: tuple[Message, ...], model: str) -> ProviderRequest:
    """Returns the request of the next step."""
    return assemble(history, make_turn(model=ModelRef("p", model)), "be brief").request


@pytest.mark.parametrize("dialect", BUILDERS)
@given(data=st.data(), model=st.sampled_from(MODELS))
@normal_run
def test_a_copy_reads_as_its_original(dialect: str, data: st.DataObject, model: str) -> None:
    """In every API, and in a copy of the copy; the digests that decide about sealed reasoning are equal too."""
    drawn = data.draw(histories(mostly_with(dialect, "p", model)))
    complete = [message for message in drawn if message.status is not MessageStatus.STREAMING]
    known = {message.message_id for message in complete}
    history = tuple(  # what is stored refers to what is there
        msgspec.structs.replace(
            one, answers_message_id=one.answers_message_id if one.answers_message_id in known else ""
        )
        for one in complete
    )
    numbers = itertools.count()
    bodies, prefixes = [], []
    for copy in range(3):
        request = assembled(history, model)
        prefixes.append(prefix_of(request))
        changed = prefix_changed(request, prefixes[-1])
        sent = ProviderRequest(
            model_id=model, system=request.system, messages=request.messages, files=FILES, prefix_changed=changed
        )
        bodies.append(body_of(BUILDERS[dialect](sent, "p")))
        conversation = Conversation(make_session(), history, ())
        history = copy_conversation(
            conversation, "", f"ses_{copy}", lambda kind: f"{kind}_copy_{next(numbers)}", NOW
        ).messages
    assert bodies[1:] == bodies[:1] * 2
    assert prefixes[1:] == prefixes[:1] * 2
