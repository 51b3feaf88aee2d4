"""Questions of MCP servers to people: which are asked, and how links are known."""

import asyncio
from typing import Any

import pytest
from mcp import MCPError
from mcp_types import (
    URL_ELICITATION_REQUIRED,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    InputRequiredResult,
)

from tests.support.fakes.loop import settled
from turnwire.domain.conversation.questions import QuestionAction, QuestionReply
from turnwire.ports.tools import MAX_OPEN_OF_CALL, NewQuestion, QuestionRefused
from turnwire.tools.mcp.elicitation import Elicitations, links_of, pause_of
from turnwire.tools.mcp.running_call import RunningCall

LINK = "https://example.com/"


def _link(elicitation_id: str) -> ElicitRequestURLParams:
    return ElicitRequestURLParams(message="Open it", url=LINK, elicitation_id=elicitation_id)


def _required(links: list[Any]) -> MCPError:
    return MCPError(URL_ELICITATION_REQUIRED, "open them", {"elicitations": links})


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


def test_a_call_requires_as_many_links_as_may_be_open() -> None:
    """One more is refused before any of them is validated or opened."""
    links = [_link(str(number)).model_dump(by_alias=True) for number in range(MAX_OPEN_OF_CALL)]
    assert len(links_of(_required(links))) == MAX_OPEN_OF_CALL
    with pytest.raises(QuestionRefused, match="9 questions"):
        links_of(_required([*links, {}]))


def test_a_call_pauses_with_as_many_questions_as_may_be_open() -> None:
    """One more is refused before any of them is validated."""
    asked = ElicitRequest(params=_link("a"))
    requests = {str(number): asked for number in range(MAX_OPEN_OF_CALL)}
    assert len(pause_of(InputRequiredResult(input_requests=requests)).questions) == MAX_OPEN_OF_CALL
    with pytest.raises(QuestionRefused, match="9 questions"):
        pause_of(InputRequiredResult(input_requests=requests | {"more": asked}))


def test_a_call_pauses_with_questions_of_short_names() -> None:
    """The names are stored with the questions."""
    form: dict[str, Any] = {"type": "object", "properties": {}}
    asked = ElicitRequest(params=ElicitRequestFormParams(message="What?", requested_schema=form))
    with pytest.raises(QuestionRefused, match="256 characters"):
        pause_of(InputRequiredResult(input_requests={"k" * 257: asked}))
