"""Whatever a client appends, in whichever order, the next request of the session is one that its API takes."""

import itertools
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opencode.message import content_pb2 as content
from opencode.message import message_pb2 as pb
from tests.support.fakes.domain_values import NOW, make_turn
from tests.support.models.wire_requests import BUILDERS, body_of, normal_run, violations
from tests.support.oracles.whole_requests import assemble
from turnwire.api.wire.requests.messages import append_request
from turnwire.core.intake.requests import NewText
from turnwire.core.tools.folded_results import fold_results, name_calls
from turnwire.domain.conversation.messages import Message, MessageStatus, MessageType, ModelRef, Part, Text
from turnwire.domain.errors import InvalidRequest
from turnwire.ports.commit import PutMessage
from turnwire.ports.provider import ProviderRequest

RUNS = (content.ModelRun(), content.ModelRun(provider_id="p", model_requested="m"), content.ModelRun(provider_id="q"))
TEXTS = ("hi", "more words", "", " ", "\n\n")


def _text(draw: st.DrawFn) -> pb.MessagePart:
    return pb.MessagePart(text=pb.TextPart(text=draw(st.sampled_from(TEXTS))))


@st.composite
def answer_parts(draw: st.DrawFn) -> list[pb.MessagePart]:
    """Draws an answer: of text, reasoning and refusals, or of any of these alone, with any calls."""
    parts = []
    for kind in draw(
        st.lists(st.sampled_from(("text", "reasoning", "refusal", "call", "call")), min_size=1, max_size=5)
    ):
        if kind == "text":
            parts.append(_text(draw))
        elif kind == "reasoning":
            words = content.ReasoningContent(text=draw(st.sampled_from(("hm", " "))))
            parts.append(pb.MessagePart(reasoning=words))
        elif kind == "refusal":
            parts.append(pb.MessagePart(refusal=content.RefusalContent(text=draw(st.sampled_from(("no", " "))))))
        else:
            call = pb.AppendedToolCall(
                name=draw(st.sampled_from(("look", "fs.read", "ünï", "n" * 101))),
                call_id=draw(st.sampled_from(("c1", "c2", "c3", "", "x" * 100, "a b"))),
                input_json=draw(st.sampled_from(("", "{}", '{"a":1}', '{"a":', "[1]"))),
            )
            if draw(st.booleans()):
                output, is_error = draw(st.sampled_from(("", " ", "it"))), draw(st.booleans())
                call.result.CopyFrom(pb.AppendedToolResult(output=output, is_error=is_error))
            parts.append(pb.MessagePart(tool_call=call))
    return parts


@st.composite
def appended(draw: st.DrawFn) -> pb.AppendMessageRequest:
    """Draws a request, which may be one that is refused."""
    kind = draw(
        st.sampled_from(("USER", "ASSISTANT", "ASSISTANT", "ASSISTANT", "SYSTEM", "HOST", *["TOOL_RESULT"] * 4))
    )
    request = pb.AppendMessageRequest(session_id="ses_1", type=content.MessageType.Value(f"MESSAGE_TYPE_{kind}"))
    if kind == "ASSISTANT":
        request.parts.extend(draw(answer_parts()))
        request.model_run.CopyFrom(draw(st.sampled_from(RUNS)))
    elif kind == "TOOL_RESULT":
        for call_id in draw(st.lists(st.sampled_from(("c1", "c2", "c3", "x" * 100, "none")), min_size=1, max_size=3)):
            result = content.ToolResultContent(
                call_id=call_id, output=draw(st.sampled_from(("", " ", "it"))), is_error=draw(st.booleans())
            )
            request.parts.append(pb.MessagePart(tool_result=result))
    else:
        request.parts.append(_text(draw))
    return request


def stored(requests: Sequence[pb.AppendMessageRequest]) -> list[Message]:
    """Returns the conversation that the server has after these requests; what it refuses is not in it."""
    number = itertools.count().__next__
    history = list[Message]()
    for request in requests:
        try:
            new = append_request(request)
        except InvalidRequest:
            continue
        contents = [Text(part.text) if isinstance(part, NewText) else part for part in new.parts]
        message = Message(
            message_id=f"msg_{number()}",
            session_id="ses_1",
            type=new.type,
            status=MessageStatus.COMPLETE,
            created_at=NOW,
            updated_at=NOW,
            parts=tuple(
                Part(part_id=f"prt_{number()}", index=index, content=one)  # type: ignore[arg-type]  # no files
                for index, one in enumerate(contents)
            ),
            **({} if new.report is None else msgspec.structs.asdict(new.report)),
        )
        if new.type is MessageType.TOOL_RESULT:
            try:
                message, work = fold_results(name_calls(message, history), history, NOW)
            except InvalidRequest:
                continue
            settled = {put.message.message_id: put.message for put in work.changes if isinstance(put, PutMessage)}
            history = [settled.get(one.message_id, one) for one in history]
        history.append(message)
    return history


@pytest.mark.parametrize("dialect", BUILDERS)
@given(requests=st.lists(appended(), min_size=1, max_size=9), system=st.sampled_from(("", "be brief")))
@normal_run
def test_no_order_of_appended_messages_makes_a_request_that_is_refused(
    dialect: str, requests: list[pb.AppendMessageRequest], system: str
) -> None:
    """Nor do calls without a result, results twice or without a call, and answers that say nothing to a model."""
    turn = make_turn(model=ModelRef("p", "m"))
    request: ProviderRequest = assemble(stored(requests), turn, system).request
    prepared = BUILDERS[dialect](request, "p")
    assert violations(dialect, body_of(prepared), request) == []
