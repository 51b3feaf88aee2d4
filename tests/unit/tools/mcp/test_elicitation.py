"""Questions of MCP servers to people: which are asked, and how links are known."""

import asyncio
from typing import Any

import pytest
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitRequestURLParams, InputRequiredResult

from tests.support.fakes.loop import settled
from turnwire.domain.conversation.questions import QuestionAction, QuestionReply
from turnwire.ports.tools import NewQuestion, QuestionRefused
from turnwire.tools.mcp.elicitation import Elicitations, pause_of
from turnwire.tools.mcp.running_call import RunningCall

LINK = "https://example.com/"


def _link(elicitation_id: str) -> ElicitRequestURLParams:
    return ElicitRequestURLParams(message="Open it", url=LINK, elicitation_id=elicitation_id)


async def test_links_of_one_name_are_all_done_at_once() -> None:
    """Whichever of them was answered before."""
    seen: list[NewQuestion] = []
    answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def reply(question: NewQuestion) -> QuestionReply:
        seen.append(question)
        if len(seen) > 1:
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


def test_a_call_pauses_with_questions_of_short_names() -> None:
    """The names are stored with the questions."""
    form: dict[str, Any] = {"type": "object", "properties": {}}
    asked = ElicitRequest(params=ElicitRequestFormParams(message="What?", requested_schema=form))
    with pytest.raises(QuestionRefused, match="256 characters"):
        pause_of(InputRequiredResult(input_requests={"k" * 257: asked}))
