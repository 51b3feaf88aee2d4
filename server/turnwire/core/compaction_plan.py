"""Where a conversation is cut when it does not fit its model's context window: pure functions.

Whole messages only: a tool call carries its result in the same message, so pairs stay together. Cut is before a user
message, such that no turn is divided. Only when the running turn alone is too long it is cut between two of its steps;
its user message then stays, word by word, behind the summary.
"""

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from turnwire.core.settings import CompactionSettings
from turnwire.domain.messages import FinishReason, Message, MessageType
from turnwire.domain.sessions import Turn

DEFAULT_ANSWER_TOKENS = 4096
"""Room for an answer whose length nobody limits."""
DEFAULT_ANSWER_SHARE = 1 / 8
"""Of the window at most, for such an answer."""
MAX_ANSWER_SHARE = 1 / 2
"""Of the window at most, whatever limit the caller gives: else no room would be left for a conversation."""
MAX_SUMMARY_TOKENS = 4096
SUMMARY_SHARE = 1 / 10
"""Of the window at most."""
MIN_GAIN = 2
"""What is covered must be at least this many times as long as its summary may become, or little were gained."""


class Allowance(Struct, frozen=True, kw_only=True):
    """How the context window of a model is divided, in estimated tokens."""

    window: int
    answer: int
    """Room for the answer."""
    prompt: int
    """A request that is longer is compacted."""
    keep: int
    """What stays is at most this long, its summary included."""
    summary: int
    """The longest summary."""


class Cut(Struct, frozen=True):
    """What a summary is to cover."""

    covered: tuple[Message, ...]
    """As they were sent, in order; an earlier summary comes first. The question of a divided turn is not among them."""
    through_message_id: str
    question: Message | None = None
    """The user message of the running turn when the cut lies in the middle of that turn."""


def allowance(window: int, turn: Turn, settings: CompactionSettings) -> Allowance:
    """Returns how a window is divided.

    Args:
        window: The model's context window in tokens.
        turn: The turn; its output limit is the room for the answer.
        settings: Threshold and what may be kept.
    """
    asked = turn.options.max_output_tokens
    answer = min(DEFAULT_ANSWER_TOKENS, window * DEFAULT_ANSWER_SHARE) if asked is None else asked
    answer = int(min(answer, window * MAX_ANSWER_SHARE))
    prompt = max(int(settings.threshold * window) - answer, 0)
    return Allowance(
        window=window,
        answer=answer,
        prompt=prompt,
        # never as much as fills it: the next step would be compacted again at once
        keep=min(int(settings.keep * window), prompt * 3 // 4),
        summary=int(min(MAX_SUMMARY_TOKENS, window * SUMMARY_SHARE)),
    )


def choose_cut(
    messages: Sequence[Message], turn: Turn, allowed: Allowance, fixed: int, tokens_of: Callable[[Message], int]
) -> Cut | None:
    """Returns where to cut, keeping as much as may be kept; None when nothing useful would be gained.

    Args:
        messages: Those of the request, in order.
        turn: The turn that runs.
        allowed: The window's division.
        fixed: Tokens of system prompt and tools.
        tokens_of: The estimate for one message.
    """
    body = [message for message in messages if message.type is not MessageType.SYSTEM]
    sizes = {message.message_id: tokens_of(message) for message in messages}
    fixed += allowed.summary + sum(sizes[m.message_id] for m in messages if m.type is MessageType.SYSTEM)
    best: Cut | None = None
    best_kept = 0
    for cut in (*_cuts_between_turns(body, turn), *_cuts_between_steps(body, turn)):
        covered = sum(sizes[message.message_id] for message in cut.covered)
        if covered < MIN_GAIN * allowed.summary or all(m.compaction is not None for m in cut.covered):
            continue
        best, best_kept = cut, fixed + sum(sizes[message.message_id] for message in body) - covered
        if best_kept <= allowed.keep:
            return best
    # the shortest form there is; when even that does not fit, the provider shall say so
    return best if best_kept + allowed.answer <= allowed.window else None


def _cuts_between_turns(body: Sequence[Message], turn: Turn) -> Iterator[Cut]:
    """Yields the cuts that divide no turn and keep the newest user message, from the oldest to the newest."""
    newest = _newest_question(body)
    for at in range(1, newest + 1):
        before = {message.turn_id for message in body[:at] if message.turn_id and message.compaction is None}
        # the turn that runs goes on after its last message
        divided = turn.turn_id in before or any(message.turn_id in before for message in body[at:])
        if body[at].type is MessageType.USER and not divided:
            yield Cut(tuple(body[:at]), body[at - 1].message_id)


def _cuts_between_steps(body: Sequence[Message], turn: Turn) -> Iterator[Cut]:
    """Yields the cuts behind steps of the running turn, from the oldest to the newest.

    None when a user message came after the turn's own, which would be lost, and none behind a paused step, which is to
    be handed back. Steps with sealed reasoning are covered all or none: each is valid behind the others only.
    """
    question = _newest_question(body)
    if question < 0 or body[question].message_id != turn.user_message_id:
        return
    last = body[-1]
    if last.finish_reason is FinishReason.PAUSED:
        return
    for at in range(question + 2, len(body) + 1):
        through = body[at - 1]
        is_step = through.type is MessageType.ASSISTANT and through.turn_id == turn.turn_id
        if is_step and not (_is_sealed(body[question + 1 : at]) and _is_sealed(body[at:])):
            covered = (*body[:question], *body[question + 1 : at])
            yield Cut(covered, through.message_id, body[question])


def _newest_question(body: Sequence[Message]) -> int:
    """Returns the index of the newest user message; -1 when there is none. A summary is no question."""
    for index in range(len(body) - 1, -1, -1):
        if body[index].type is MessageType.USER and body[index].compaction is None:
            return index
    return -1


def _is_sealed(messages: Sequence[Message]) -> bool:
    return any(part.provider_state is not None for message in messages for part in message.parts)
