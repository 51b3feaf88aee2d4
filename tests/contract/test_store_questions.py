"""Store: questions of tool calls."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from tests.support.fakes.domain_values import NOW, creating, make_question
from tests.support.fakes.opened_store import OpenedStore, opened_store
from turnwire.domain.conversation.questions import (
    HeldQuestion,
    LinkForm,
    Question,
    QuestionAction,
    QuestionAnswer,
    QuestionHold,
)
from turnwire.domain.errors import QuestionNotFound
from turnwire.domain.principal import DEFAULT_TENANT
from turnwire.ports.commit import Commit, PutQuestion
from turnwire.ports.pages import Page, QuestionPage

ONE = make_question("que_b")
TWO = make_question("que_a", form=LinkForm("https://example.com/connect"))
OTHER = make_question("que_c", "ses_2")
HOLD = QuestionHold(key="k", state='"opaque"')


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[OpenedStore]:
    """A store with two sessions that have three open questions; what the first one's call needs is kept."""
    async with opened_store(tmp_path) as running:
        for session_id in ("ses_1", "ses_2"):
            await running.store.commit(creating(session_id))
        await _put(running, ONE, HOLD)
        await _put(running, TWO)
        await _put(running, OTHER)
        yield running


async def _put(opened: OpenedStore, question: Question, hold: QuestionHold | None = None) -> None:
    await opened.store.commit(Commit(session_id=question.session_id, at=NOW, changes=(PutQuestion(question, hold),)))


def _answered(question: Question, action: QuestionAction = QuestionAction.ACCEPT) -> Question:
    return msgspec.structs.replace(question, answer=QuestionAnswer(action, "because"))


async def test_open_questions_come_oldest_first(opened: OpenedStore) -> None:
    """A list has those of one session, or of all; the answered ones are not among them."""
    reads = opened.store.of(DEFAULT_TENANT)
    assert await reads.open_questions("ses_1", Page(size=5)) == QuestionPage((ONE, TWO), "")
    assert await reads.open_questions(None, Page(size=5)) == QuestionPage((ONE, TWO, OTHER), "")
    await _put(opened, _answered(ONE))
    assert (await reads.open_questions("ses_1", Page(size=5))).questions == (TWO,)


async def test_a_question_is_read_open_and_answered(opened: OpenedStore) -> None:
    """With everything that it was stored with."""
    reads = opened.store.of(DEFAULT_TENANT)
    assert await reads.asked_question("ses_1", "que_a") == TWO
    await _put(opened, _answered(TWO, QuestionAction.DECLINE))
    assert await reads.asked_question("ses_1", "que_a") == _answered(TWO, QuestionAction.DECLINE)


@pytest.mark.parametrize(("session_id", "question_id"), [("ses_2", "que_a"), ("ses_1", "que_x"), ("ses_9", "que_a")])
async def test_a_question_is_found_in_its_session_alone(opened: OpenedStore, session_id: str, question_id: str) -> None:
    """Another session, an unknown question, an unknown session."""
    with pytest.raises(QuestionNotFound):
        await opened.store.of(DEFAULT_TENANT).asked_question(session_id, question_id)


async def test_pending_questions_are_open_or_held(opened: OpenedStore) -> None:
    """An answered question is pending until what its call needs is dropped."""
    reads = opened.store.of(DEFAULT_TENANT)
    assert await reads.pending_questions("ses_1") == (HeldQuestion(ONE, HOLD), HeldQuestion(TWO, None))
    filled = msgspec.structs.replace(HOLD, content_json='{"name":"x"}')
    await _put(opened, _answered(ONE), filled)
    await _put(opened, _answered(TWO))
    assert await reads.pending_questions("ses_1") == (HeldQuestion(_answered(ONE), filled),)
    await _put(opened, _answered(ONE))
    assert await reads.pending_questions("ses_1") == ()


async def test_another_tenant_finds_none_of_them(opened: OpenedStore) -> None:
    """By its id, as one that is not there."""
    with pytest.raises(QuestionNotFound):
        await opened.store.of("b").asked_question("ses_1", "que_a")
