"""Commands on tool calls: pure decisions."""

import random
from collections.abc import Iterator
from datetime import timedelta

import msgspec

from tests.support.fakes.domain_values import NOW, make_answer, make_permission, make_question
from turnwire.core.actor import Command, Decision, Now
from turnwire.core.tools.calls import TRANSITIONS, PassTime
from turnwire.core.tools.client_calls import CallLimits, ClaimCall, ReleaseLease, RenewLease, SubmitResult
from turnwire.core.tools.open_calls import CallPhase, OpenCalls
from turnwire.core.tools.permission_requests import AnswerPermission
from turnwire.core.tools.questions import AnswerQuestion, AskQuestions, CloseQuestion, ResumeCall
from turnwire.core.tools.results import CallResult
from turnwire.core.tools.server_calls import EndCall, KeepLogs, StartCall
from turnwire.domain.conversation.messages import ToolUse
from turnwire.domain.conversation.permissions import PermissionAnswer, PermissionChoice, PermissionRequest
from turnwire.domain.conversation.questions import HeldQuestion, Question, QuestionAction, QuestionAnswer, QuestionHold
from turnwire.domain.errors import DomainError
from turnwire.ports.commit import Work
from turnwire.ports.tools import QuestionRefused

LIMITS = CallLimits(free=60.0, whole=120.0)
TOOLS = ("read", "fs.write")
LIMIT = timedelta(seconds=30)


def _permission(index: int) -> PermissionRequest:
    tool, part_id = TOOLS[index % 2], f"prt_{index}"
    return make_permission(f"per_{index}", part_index=index, tool_call_id=part_id, tool=tool, patterns=(tool,))


def _question(index: int, number: int) -> Question:
    ends = NOW + LIMIT
    return make_question(f"que_{number}", part_index=index, tool_call_id=f"prt_{index}", expires_at=ends)


def _calls() -> OpenCalls:
    """Returns four calls, of a client's and a server's tool; the last two wait for a permission."""
    asking = [msgspec.structs.replace(ToolUse(name=TOOLS[i % 2]), permission_id=f"per_{i}" * (i > 1)) for i in range(4)]
    permissions = (_permission(2), _permission(3))
    now = Now(NOW, 0.0)
    return OpenCalls.of(
        make_answer("msg_1", *asking), frozenset(TOOLS[:1]), permissions, (), question_timeout=LIMIT, now=now
    )


def _walk(seed: int) -> Iterator[tuple[OpenCalls, Command[OpenCalls], Decision[OpenCalls], Now]]:
    """Yields what commands that come by chance make of calls, with the calls before."""
    chance, calls, seconds = random.Random(seed), _calls(), 0.0
    for number in range(150):
        seconds += chance.choice((0, 0, 1, 5, 20))
        now = Now(NOW, seconds)
        command = _any(chance, calls, number, now)
        try:
            decision = command.decide(calls, now)
        except (DomainError, QuestionRefused):
            continue
        yield calls, command, decision, now
        calls = decision.state


def _any(chance: random.Random, calls: OpenCalls, number: int, now: Now) -> Command[OpenCalls]:
    """Returns a command as it may come next; what the server's tools do comes in its order."""
    index, result = chance.randrange(4), CallResult(output=str(chance.randrange(2)))
    questions = list(calls.questions) or ["none"]
    match calls.phase(index, now):
        case CallPhase.DUE:
            return StartCall(index) if chance.randrange(8) else EndCall(index, result)
        case CallPhase.RUNNING if chance.randrange(3):
            hold = QuestionHold(key="k", state="s") if chance.randrange(2) else None
            asking = AskQuestions(index, (HeldQuestion(_question(index, number), hold),))
            return chance.choice([asking, KeepLogs({index: (str(number),)}), EndCall(index, result, ("line",))])
        case CallPhase.PAUSED if not any(one.is_open for one in calls.held_questions(index)):
            return ResumeCall(index) if chance.randrange(8) else EndCall(index, result)
    answers = (PermissionAnswer(choice) for choice in (PermissionChoice.ONCE, PermissionChoice.REJECT))
    if "none" in questions:
        asked: list[Command[OpenCalls]] = []
    else:
        question_id = chance.choice(questions)
        decline = QuestionAnswer(QuestionAction.DECLINE)
        asked = [AnswerQuestion(question_id, decline)]
        if calls.questions[question_id].held.hold is None:
            asked.append(CloseQuestion(question_id, decline))
    lease = calls.call(index).lease
    return chance.choice(
        [
            *asked,
            *(AnswerPermission(f"per_{chance.choice((2, 3))}", answer) for answer in answers),
            ClaimCall(index, f"lse_{number}", "a", timedelta(seconds=chance.choice((1, 300))), Work()),
            RenewLease(index, lease.lease_id if lease else "lse_x", LIMIT, ("line",), Work()),
            ReleaseLease(index, lease.lease_id if lease else "lse_x", Work()),
            PassTime(LIMITS),
            *([SubmitResult(index, result, lease.lease_id if lease else "")] * (number % 3 == 0)),
        ]
    )


def test_the_table_of_transitions_is_what_is_decided() -> None:
    """Nothing else happens to a call that a command changes, and everything in the table does."""
    seen = set()
    for seed in range(150):
        for calls, command, decision, now in _walk(seed):
            for index in range(4):
                if _changed(calls, decision.state, index):
                    seen.add((calls.phase(index, now), type(command), decision.state.phase(index, now)))
    listed = {
        (phase, command, after)
        for phase, commands in TRANSITIONS.items()
        for command, phases in commands.items()
        for after in phases
    }
    assert seen == listed


def _changed(before: OpenCalls, after: OpenCalls, index: int) -> bool:
    def of_call(calls: OpenCalls) -> list[object]:
        return [one for one in calls.questions.values() if one.question.part_index == index]

    return before.call(index) != after.call(index) or of_call(before) != of_call(after)


def test_a_call_has_one_result_and_nothing_is_open_behind_it() -> None:
    """Whatever comes: no permission, question, lease or time of it is left."""
    for seed in range(40):
        for calls, _, decision, _ in _walk(seed):
            for index in range(4):
                call = decision.state.call(index)
                if calls.call(index).status.settled:
                    assert call == calls.call(index)
                if not call.status.settled:
                    continue
                assert (call.permission_id, call.lease, index in decision.state.times) == ("", None, False)
                of_call = [one for one in decision.state.questions.values() if one.question.part_index == index]
                assert not any(one.is_open or one.held.hold for one in of_call)


def test_a_client_may_answer_exactly_what_has_times() -> None:
    """Else nobody would see that a call is overdue."""
    for seed in range(40):
        for _, _, decision, _ in _walk(seed):
            calls = decision.state
            open_calls = {
                part.index
                for part, call in calls.message.tool_calls()
                if not call.status.settled and call.name == TOOLS[0] and not call.permission_id
            }
            assert set(calls.times) == open_calls
