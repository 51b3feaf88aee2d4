"""Where to cut a conversation that does not fit its model's context window: pure functions.

A cut is between messages: a tool call has its result in the same message, so the two stay together. The cut is before a
user message, so that it divides no turn. Only when the running turn alone is too long, the cut is between two of its
steps; its user message then stays, word for word, after the summary, and so do those that joined it.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

from msgspec import Struct

from turnwire.core.settings import CompactionSettings
from turnwire.domain.conversation.messages import FinishReason, Message, MessageType
from turnwire.domain.conversation.turns import Turn

DEFAULT_ANSWER_TOKENS = 4096
"""Room for an answer without a length limit."""
DEFAULT_ANSWER_SHARE = 1 / 8
"""Largest share of the window for such an answer."""
MAX_ANSWER_SHARE = 1 / 2
"""Largest share of the window for any answer, whatever the caller's limit, so that room is left for a conversation."""
MIN_PROMPT_SHARE = 1 / 4
"""Smallest share of the fillable part for the prompt: a low threshold and a long answer must not compact every step."""
MAX_SUMMARY_TOKENS = 4096
"""Of a summary that takes the place of older messages."""
SUMMARY_SHARE = 1 / 10
"""Largest share of the window for a summary."""
MIN_GAIN = 2
"""The covered messages must be this many times as long as the longest summary, or compaction would gain little."""


class Allowance(Struct, frozen=True, kw_only=True):
    """How the context window of a model is divided, in estimated tokens."""

    window: int
    answer: int
    """Room for the answer."""
    prompt: int
    """A longer request is compacted."""
    keep: int
    """Largest size of the request after compaction, including the summary."""
    summary: int
    """The longest summary."""


class Cut(Struct, frozen=True):
    """What a summary will cover."""

    covered: tuple[Message, ...]
    """As they were sent, in order; an earlier summary comes first. Excludes the questions of a divided turn."""
    through_message_id: str
    questions: tuple[Message, ...] = ()
    """The user message of the running turn, and those that came during it, when the cut is in the middle of it."""


def allowance(window: int, turn: Turn, settings: CompactionSettings) -> Allowance:
    """Returns how a window is divided.

    Args:
        window: The model's context window in tokens.
        turn: The turn; its output limit is the room for the answer.
        settings: The threshold and the share to keep.
    """
    asked = turn.options.max_output_tokens
    answer = min(DEFAULT_ANSWER_TOKENS, window * DEFAULT_ANSWER_SHARE) if asked is None else asked
    answer = int(min(answer, window * MAX_ANSWER_SHARE))
    filled = int(settings.threshold * window)
    prompt = max(filled - answer, int(filled * MIN_PROMPT_SHARE))
    return Allowance(
        window=window,
        answer=answer,
        prompt=prompt,
        # less than fills it, or the next step would be compacted again at once
        keep=min(int(settings.keep * window), prompt * 3 // 4),
        summary=int(min(MAX_SUMMARY_TOKENS, window * SUMMARY_SHARE)),
    )


def choose_cut(
    messages: Sequence[Message], turn: Turn, allowed: Allowance, fixed: int, tokens_of: Callable[[Message], int]
) -> Cut | None:
    """Returns where to cut, keeping as much as allowed; None when no cut would gain enough.

    Args:
        messages: The messages of the request, in order.
        turn: The running turn.
        allowed: The window's division.
        fixed: Tokens of system prompt and tools.
        tokens_of: The estimate for one message.
    """
    body = [message for message in messages if message.type is not MessageType.SYSTEM]
    sizes = [tokens_of(message) for message in body]
    total = sum(sizes)
    fixed += allowed.summary + sum(tokens_of(m) for m in messages if m.type is MessageType.SYSTEM)
    covered_before = [0, *accumulate(sizes)]
    said_before = [0, *accumulate(int(message.compaction is None) for message in body)]
    best: _Place | None = None
    best_kept = 0
    for place in (*_places_between_turns(body, turn), *_places_between_steps(body, turn)):
        covered = covered_before[place.at] - sum(sizes[at] for at in place.questions)
        if covered < MIN_GAIN * allowed.summary or not said_before[place.at]:
            continue
        best, best_kept = place, fixed + total - covered
        if best_kept <= allowed.keep:
            return best.cut(body)
    # the shortest possible form; when even that does not fit, no summary is made and the provider refuses the request
    return best.cut(body) if best is not None and best_kept + allowed.answer <= allowed.window else None


class _Place(Struct, frozen=True):
    """A possible cut: before the message at `at`, leaving out the questions of a divided turn."""

    at: int
    questions: tuple[int, ...] = ()

    def cut(self, body: Sequence[Message]) -> Cut:
        covered = tuple(message for at, message in enumerate(body[: self.at]) if at not in self.questions)
        return Cut(covered, body[self.at - 1].message_id, tuple(body[at] for at in self.questions))


def _places_between_turns(body: Sequence[Message], turn: Turn) -> Iterator[_Place]:
    """Yields the places that divide no turn and keep the newest user message, from the oldest to the newest."""
    last_of = {message.turn_id: index for index, message in enumerate(body) if message.turn_id}
    last_of[turn.turn_id] = len(body)  # the running turn continues after its last message
    begun = 0
    """The latest end of the turns that began before the place."""
    for at in range(1, _newest_question(body) + 1):
        before = body[at - 1]
        if before.turn_id and before.compaction is None:
            begun = max(begun, last_of[before.turn_id])
        if body[at].type is MessageType.USER and begun < at:
            yield _Place(at)


def _places_between_steps(body: Sequence[Message], turn: Turn) -> Iterator[_Place]:
    """Yields the places after steps of the running turn, from the oldest to the newest.

    Yields nothing when the last step is paused, which must be sent back. Steps with sealed reasoning are covered
    together or not at all: the reasoning of each is valid only after that of the others.
    """
    asked = [at for at, message in enumerate(body) if message.message_id == turn.user_message_id]
    own = (at for at, message in enumerate(body) if message.turn_id == turn.turn_id)
    question = asked[0] if asked else next(own, 0) - 1  # results that a turn goes on behind are sent with their calls
    if question < 0 or body[-1].finish_reason is FinishReason.PAUSED:
        return
    if not asked and is_question(body[question]):  # of another turn: its own says nothing to a model
        return
    questions = [at for at in range(question, len(body)) if is_question(body[at])]
    sealed = [at for at in range(question + 1, len(body)) if _is_sealed(body[at])]
    for at in range(question + 2, len(body) + 1):
        through = body[at - 1]
        is_step = through.type is MessageType.ASSISTANT and through.turn_id == turn.turn_id
        if is_step and not (sealed and sealed[0] < at <= sealed[-1]):
            yield _Place(at, tuple(one for one in questions if one < at))


def is_question(message: Message) -> bool:
    """Returns whether a message is the user's; a summary is not."""
    return message.type is MessageType.USER and message.compaction is None


def _newest_question(body: Sequence[Message]) -> int:
    """Returns the index of the newest user message; -1 when there is none. A summary does not count."""
    for index in range(len(body) - 1, -1, -1):
        if is_question(body[index]):
            return index
    return -1


def _is_sealed(message: Message) -> bool:
    return any(part.provider_state is not None for part in message.parts)
