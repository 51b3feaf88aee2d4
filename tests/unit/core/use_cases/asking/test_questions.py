"""Answers to questions of tools."""

import asyncio
from types import SimpleNamespace
from typing import cast

from tests.support.fakes.core import FakeStore, make_environment
from tests.support.fakes.domain_values import make_answer, make_session, make_turn
from tests.support.fakes.loop import settled
from turnwire.core.intake.inputs import NewAnswer
from turnwire.core.intake.once import NamedRequests
from turnwire.core.tools.questions.asking import Questions
from turnwire.core.tools.results import StoredCalls
from turnwire.core.turns.registry import Turns
from turnwire.core.use_cases.asking import questions
from turnwire.domain.conversation.messages import ToolUse
from turnwire.domain.conversation.questions import QuestionAction, QuestionAnswer, SchemaForm
from turnwire.domain.principal import BUILT_IN, DEFAULT_TENANT
from turnwire.ports.commit import Committed, PutQuestion
from turnwire.ports.tools import NewQuestion


async def test_an_answer_waits_for_its_question() -> None:
    """Who begins to watch is told of a question while it is stored, and may be quick to answer."""
    store = FakeStore(automatic=False)
    store.sessions_by_id["ses_1"] = make_session()
    environment = make_environment(store)
    message = make_answer("msg_1", ToolUse(name="ask.one", input_json="{}"))
    asked = Questions(environment, make_turn(), StoredCalls(environment, "default", message))
    turns = cast(Turns, SimpleNamespace(calls=lambda _: SimpleNamespace(questions=asked)))
    use_case = questions.Questions(environment, turns, NamedRequests(store))
    form = SchemaForm(schema_json='{"type": "object", "properties": {}}')
    await environment.schemas.problems(DEFAULT_TENANT, (form.schema_json,))  # the first time is on a thread
    asking = asyncio.create_task(asked.ask(0, NewQuestion(prompt="Which?", form=form)))
    await settled()
    decline = NewAnswer(session_id="ses_1", question_id="que_1", answer=QuestionAnswer(QuestionAction.DECLINE))
    answering = asyncio.create_task(use_case.answer(BUILT_IN, decline))
    await settled()
    assert not answering.done()
    store.automatic = True
    store.futures[0].set_result(Committed(0, 1))
    assert await answering > 0
    assert (await asking).action is QuestionAction.DECLINE
    puts = [one for commit in store.commits for one in commit.changes if isinstance(one, PutQuestion)]
    assert [one.question.answer for one in puts[:2]] == [None, decline.answer]
    await use_case.aclose()
