"""The progress of an import, and its outcome: bounded, for all callers that follow it."""

import asyncio
from collections.abc import AsyncGenerator
from enum import Enum

from msgspec import Struct

from turnwire.domain.archive.records import ImportProblem

MAX_LISTED_SESSIONS = 5_000
"""Maximum sessions listed for one import; further ones are only counted."""
MAX_LISTED_PROBLEMS = 1_000
"""Maximum problems listed for one import; further ones are only counted."""
ANSWER_SESSIONS = 200
ANSWER_PROBLEMS = 100
"""Maximum problems in one response: with long explanations it stays far below the size that a client accepts."""
MAX_TEXT_CHARACTERS = 500
"""Maximum length of one text in the progress of an import."""


class ImportOutcome(Enum):
    """The outcome for one session of an archive."""

    CREATED = "created"
    """It was not here and is now, or would be."""
    ADDED = "added"
    """It was here and got what came since, or would get it."""
    UNCHANGED = "unchanged"
    """It is here as the archive has it."""
    DIFFERS = "differs"
    """It was continued here, or has a message that is not as in the archive. Nothing was stored for it."""


PAUSE_SECONDS = 0.25
"""Between two answers while nothing ends."""


class ImportedSession(Struct, frozen=True, kw_only=True):
    """A session of an archive and what it became."""

    source_id: str
    session_id: str
    """"" in a dry run for one that is not there yet."""
    message_count: int
    outcome: ImportOutcome = ImportOutcome.CREATED
    added_messages: int = 0
    """Number of messages that were stored, or would be."""
    missing_messages: int = 0
    """Number of messages that are not here and are not stored, because the session differs."""

    @property
    def existed(self) -> bool:
        """Whether an earlier import has brought it, or the archive came from here."""
        return self.outcome is not ImportOutcome.CREATED


class ImportStatus(Struct, frozen=True, kw_only=True):
    """The changes since the previous response."""

    done_bytes: int
    total_bytes: int
    sessions: tuple[ImportedSession, ...] = ()
    problems: tuple[ImportProblem, ...] = ()
    session_count: int
    """All so far, those that existed included."""
    problem_count: int
    incomplete_count: int
    """Number of sessions that are not here as the archive has them."""


class ImportProgress:
    """One import, as it is seen from outside. Used on the event loop only."""

    def __init__(self) -> None:
        """Starts with nothing done."""
        self.done_bytes = self.total_bytes = 0
        self.session_count = self.problem_count = 0
        self.refused_sessions = 0
        """Sessions that a quota left out: the same import may bring them later."""
        self.incomplete_count = 0
        """Sessions that are not here as the archive has them."""
        self._sessions: list[ImportedSession] = []
        self._problems: list[ImportProblem] = []
        self._error: Exception | None = None
        self._ended = asyncio.Event()

    @property
    def has_ended(self) -> bool:
        """Whether nothing comes any more."""
        return self._ended.is_set()

    @property
    def is_final(self) -> bool:
        """Whether another try would bring nothing else."""
        return self.has_ended and self._error is None and not self.refused_sessions

    def add_session(self, session: ImportedSession) -> None:
        """Notes what became of a session."""
        self.session_count += 1
        if len(self._sessions) < MAX_LISTED_SESSIONS:
            self._sessions.append(session)

    def add_problem(self, problem: ImportProblem) -> None:
        """Notes a problem; long texts are cut."""
        self.problem_count += 1
        if len(self._problems) < MAX_LISTED_PROBLEMS:
            texts = (problem.reason, problem.explanation, problem.place, problem.source_id)
            reason, explanation, place, source_id = (text[:MAX_TEXT_CHARACTERS] for text in texts)
            self._problems.append(
                ImportProblem(
                    reason=reason, explanation=explanation, line=problem.line, place=place, source_id=source_id
                )
            )

    def end(self, error: Exception | None = None) -> None:
        """Notes the end."""
        self._error = error
        self._ended.set()

    async def follow(self) -> AsyncGenerator[ImportStatus]:
        """Yields what happened so far, then what happens, a few times a second; at last the end. Safe to cancel.

        Raises:
            Exception: the error with which the import ended.
        """
        sessions = problems = 0
        while True:
            is_last = self.has_ended
            status = ImportStatus(
                done_bytes=self.done_bytes,
                total_bytes=self.total_bytes,
                sessions=tuple(self._sessions[sessions : sessions + ANSWER_SESSIONS]),
                problems=tuple(self._problems[problems : problems + ANSWER_PROBLEMS]),
                session_count=self.session_count,
                problem_count=self.problem_count,
                incomplete_count=self.incomplete_count,
            )
            yield status
            sessions += len(status.sessions)
            problems += len(status.problems)
            if sessions < len(self._sessions) or problems < len(self._problems):
                continue
            if is_last:
                break
            try:
                async with asyncio.timeout(PAUSE_SECONDS):
                    await self._ended.wait()
            except TimeoutError:
                continue
        if self._error is not None:
            raise self._error
