"""What MCP servers ask people: which of it is asked, and what a wild server may cost."""

import asyncio
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitRequestURLParams, InputRequiredResult
from structlog.testing import capture_logs

from tests.support.fakes.loop import settled
from turnwire.domain.conversation.questions import QuestionAction, QuestionReply
from turnwire.ports.tools import NewQuestion, QuestionRefused
from turnwire.tools.mcp.elicitation import MAX_COMPLETIONS, Elicitations, links_of, pause_of
from turnwire.tools.mcp.running_call import RunningCall

LINK = "https://example.com/"


def _link(elicitation_id: str) -> ElicitRequestURLParams:
    return ElicitRequestURLParams(message="Open it", url=LINK, elicitation_id=elicitation_id)


def _needs(count: int) -> Exception:
    """Returns the error of a call that needs so many links."""
    links = [{"mode": "url", "message": "m", "url": LINK, "elicitationId": str(number)} for number in range(count)]
    return MCPError(-32042, "sign in first", {"elicitations": links})


async def test_a_link_that_is_done_is_accepted_however_many_there_were() -> None:
    """Links that were answered are no longer awaited, so a server can go on to ask with new ones."""
    seen: list[NewQuestion] = []

    async def decline(question: NewQuestion) -> QuestionReply:
        seen.append(question)
        return QuestionReply(QuestionAction.DECLINE, "")

    elicitations = Elicitations("web")
    elicitations.begin(RunningCall(decline))
    for number in range(MAX_COMPLETIONS + 1):
        await elicitations.answer(None, _link(f"one {number}"))
    assert all(question.completed is not None for question in seen)


async def test_links_of_one_name_are_all_done_at_once() -> None:
    """Whichever of them was answered before."""
    seen: list[NewQuestion] = []
    answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def reply(question: NewQuestion) -> QuestionReply:
        seen.append(question)
        if len(seen) > 1:
            assert question.completed is not None
            await question.completed.wait()
        else:
            await answered
        return QuestionReply(QuestionAction.ACCEPT, "")

    elicitations = Elicitations("web")
    elicitations.begin(RunningCall(reply))
    first, second = (asyncio.create_task(elicitations.answer(None, _link("same"))) for _ in range(2))
    await settled()
    answered.set_result(None)
    await first
    elicitations.complete("same")
    await second


@pytest.mark.parametrize(("count", "is_asked"), [(20, True), (21, False), (100_000, False)])
async def test_a_call_needs_few_links(count: int, is_asked: bool) -> None:
    """More are not even read: each would cost a task."""
    if is_asked:
        assert len(links_of(_needs(count))) == count
    else:
        with pytest.raises(QuestionRefused, match="20 questions"):
            links_of(_needs(count))


@pytest.mark.parametrize(
    ("keys", "why"), [([str(number) for number in range(21)], "20 questions"), (["k" * 257], "256 characters")]
)
def test_a_call_pauses_with_few_questions_of_short_names(keys: list[str], why: str) -> None:
    """The names are stored with the questions."""
    form: dict[str, Any] = {"type": "object", "properties": {}}
    asked = ElicitRequest(params=ElicitRequestFormParams(message="What?", requested_schema=form))
    with pytest.raises(QuestionRefused, match=why):
        pause_of(InputRequiredResult(input_requests=dict.fromkeys(keys, asked)))


async def test_a_server_that_asks_without_a_call_fills_no_log() -> None:
    """The lines grow with the logarithm of the questions."""
    elicitations = Elicitations("wild")
    with capture_logs() as lines:
        for _ in range(1000):
            await elicitations.answer(None, _link("x"))
    assert [line["refused"] for line in lines] == [2**power for power in range(10)]
