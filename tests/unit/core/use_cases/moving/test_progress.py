"""The progress of an import: everybody who follows it sees all of it, in answers of a bounded size."""

from turnwire.core.use_cases.moving.progress import (
    ANSWER_PROBLEMS,
    ANSWER_SESSIONS,
    MAX_LISTED_PROBLEMS,
    ImportedSession,
    ImportProgress,
    ImportStatus,
)
from turnwire.domain.archive.records import ImportProblem


def problem(line: int) -> ImportProblem:
    """Returns a problem in a line."""
    return ImportProblem(reason="BROKEN_LINE", explanation="it is cut", line=line)


async def followed(progress: ImportProgress) -> list[ImportStatus]:
    """Returns all answers about an import that has ended, which are few."""
    answers: list[ImportStatus] = []
    async for status in progress.follow():
        answers.append(status)
        assert len(answers) <= MAX_LISTED_PROBLEMS // ANSWER_PROBLEMS + 1
    return answers


async def test_long_lists_come_in_several_answers() -> None:
    """Each session and problem comes once and in order; every answer counts them all."""
    progress = ImportProgress()
    sessions = [
        ImportedSession(source_id=f"s{at}", session_id="", message_count=1) for at in range(ANSWER_SESSIONS + 1)
    ]
    problems = [problem(line) for line in range(2 * ANSWER_PROBLEMS + 1)]
    for session in sessions:
        progress.add_session(session)
    for one in problems:
        progress.add_problem(one)
    progress.end()
    answers = await followed(progress)
    assert [(len(answer.sessions), len(answer.problems)) for answer in answers] == [
        (ANSWER_SESSIONS, ANSWER_PROBLEMS),
        (1, ANSWER_PROBLEMS),
        (0, 1),
    ]
    assert [session for answer in answers for session in answer.sessions] == sessions
    assert [one for answer in answers for one in answer.problems] == problems
    assert {(answer.session_count, answer.problem_count) for answer in answers} == {(len(sessions), len(problems))}


async def test_problems_past_the_bound_are_counted() -> None:
    """A broken archive has as many as it has lines."""
    progress = ImportProgress()
    for line in range(MAX_LISTED_PROBLEMS + 1):
        progress.add_problem(problem(line))
    progress.end()
    answers = await followed(progress)
    assert sum(len(answer.problems) for answer in answers) == MAX_LISTED_PROBLEMS
    assert answers[-1].problem_count == MAX_LISTED_PROBLEMS + 1
