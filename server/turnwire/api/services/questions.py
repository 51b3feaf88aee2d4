"""opencode.question.QuestionService."""

from opencode.question import question_pb2 as pb
from turnwire.api.wire.answers import tools
from turnwire.api.wire.long import framed
from turnwire.api.wire.requests import pages
from turnwire.api.wire.requests.tools import question_answer
from turnwire.core.use_cases.asking import Questions
from turnwire.core.watches.resume_tokens import ResumeTokens
from turnwire.domain.principal import Principal


class QuestionService:
    """Takes answers to questions of tools and lists the open ones."""

    def __init__(self, questions: Questions, tokens: ResumeTokens) -> None:
        """Takes the use cases."""
        self._questions = questions
        self._tokens = tokens

    async def AnswerQuestion(
        self, principal: Principal, request: pb.AnswerQuestionRequest
    ) -> pb.AnswerQuestionResponse:
        """Records an answer."""
        new = question_answer(request)
        sequence = await self._questions.answer(principal, new)
        token = self._tokens.give(principal.tenant, new.session_id, sequence) if sequence else ""
        return pb.AnswerQuestionResponse(sequence=sequence, resume_token=token)

    async def ListQuestions(self, principal: Principal, request: pb.ListQuestionsRequest) -> bytes:
        """Returns a page of the open questions."""
        page = pages.page(request.page_size, request.page_token, default=pages.DEFAULT_PAGE_SIZE)
        found = await self._questions.open(principal, request.session_id, page)
        rest = pb.ListQuestionsResponse(next_page_token=found.next_token)
        return await framed(found.questions, tools.question, rest)
