"""The guarantees of docs/reference/contract.md that faults of nodes may break, each with its check and its error."""

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple


class GuaranteeBroken(AssertionError):
    """A guarantee does not hold. The subclass says which."""


class AcknowledgedOnce(GuaranteeBroken):
    """An acknowledged message is in its conversation, and once."""


class NamedOnce(GuaranteeBroken):
    """All answers to one name (`request_id`) are about one message."""


class SequencesWithoutGaps(GuaranteeBroken):
    """A watch that goes on with its token, of one session or all, has each stored event once, in its order."""


class WatchEqualsStore(GuaranteeBroken):
    """A watch has told of all messages that are stored, and of no others."""


class NodesAgree(GuaranteeBroken):
    """All nodes answer the same."""


class OneOwner(GuaranteeBroken):
    """A session has one owner at a time, and only its owner stores events and growing text of it."""


class ToolCallOnce(GuaranteeBroken):
    """A tool call is carried out at most once, and one result of it is taken, that of the lease's holder."""


class FirstApprovalWins(GuaranteeBroken):
    """The first answer to a permission request wins: another one is refused, and watches tell of the first, once."""


class HostTextStays(GuaranteeBroken):
    """The text of a message of type HOST is never sent to a model."""


class Write(NamedTuple):
    """A write for a session, as the database has noted it."""

    sequence: int
    """The sequence of an event; 0 for growing text."""
    writer: str
    """The connection."""
    is_owner: bool
    """Whether the connection had the lock of the session's shard."""


@dataclass
class ToolCall:
    """A tool call of a session."""

    starts: int = 0
    """Number of times that it was carried out."""
    results: list[tuple[str, bool]] = field(default_factory=list)
    """Outputs that clients have submitted, and whether each was taken."""
    output: str | None = None
    """Its output at the end; None unless its status is "success"."""


@dataclass
class History:
    """Observations of the clients of one session."""

    answers: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    """By the name of the request: the words that were sent, and the id of the message of each answer."""
    stored: list[list[tuple[str, str]]] = field(default_factory=list)
    """Ids and words of the messages at the end, as each node has them."""
    watched: list[tuple[int, str]] = field(default_factory=list)
    """Sequences of the stored events in the order in which they came, with the message that one adds or ends,
    or ""."""
    head: int = 0
    """The newest sequence at the end."""
    writes: list[Write] | None = None
    """The writes of the session; None for a server on a file, which has it alone."""
    calls: dict[str, ToolCall] = field(default_factory=dict)
    """By ToolCallState.id."""
    approvals: dict[str, list[tuple[str, bool]]] = field(default_factory=dict)
    """By permission request: the answers that were given, and whether each was accepted."""
    replied: list[tuple[str, str]] = field(default_factory=list)
    """Permission requests with their answers, in the order in which the watch has told of them."""
    host_texts: list[str] = field(default_factory=list)
    """The texts of messages of type HOST at the end."""
    sent: str = ""
    """The request that a model would get at the end, as JSON text."""


def check(history: History) -> None:
    """Raises a GuaranteeBroken."""
    check_acknowledged_once(history)
    check_named_once(history)
    check_sequences(history)
    check_watch(history)
    check_nodes(history)
    check_owner(history)
    check_tool_calls(history)
    check_approvals(history)
    check_host_texts(history)


def check_acknowledged_once(history: History) -> None:
    """Raises AcknowledgedOnce."""
    found = Counter(words for _, words in history.stored[0])
    for name, answers in history.answers.items():
        words = answers[0][0]
        if found[words] != 1:
            raise AcknowledgedOnce(f"{name}: {found[words]} messages with the words {words!r}")


def check_named_once(history: History) -> None:
    """Raises NamedOnce."""
    for name, answers in history.answers.items():
        if len(ids := {message_id for _, message_id in answers}) != 1:
            raise NamedOnce(f"{name}: {sorted(ids)}")


def check_sequences(history: History) -> None:
    """Raises SequencesWithoutGaps."""
    sequences = [sequence for sequence, _ in history.watched]
    if sequences != list(range(1, history.head + 1)):
        wrong = next((at for at, one in enumerate(sequences, 1) if at != one), len(sequences))
        raise SequencesWithoutGaps(f"up to {history.head}: {sequences[max(0, wrong - 3) : wrong + 3]} at {wrong}")


def check_watch(history: History) -> None:
    """Raises WatchEqualsStore."""
    told = {message_id for _, message_id in history.watched if message_id}
    stored = {message_id for message_id, _ in history.stored[0]}
    if told != stored:
        raise WatchEqualsStore(f"told but not stored, or stored but not told: {sorted(told ^ stored)}")


def check_nodes(history: History) -> None:
    """Raises NodesAgree."""
    if any(one != history.stored[0] for one in history.stored):
        raise NodesAgree(f"{[len(one) for one in history.stored]} messages")


def check_owner(history: History) -> None:
    """Raises OneOwner."""
    if history.writes is None:
        return
    if others := [write for write in history.writes if not write.is_owner]:
        raise OneOwner(f"{len(others)} writes without the lock of the session: {others[:3]}")
    noted = Counter(write.sequence for write in history.writes if write.sequence)
    if noted != Counter(range(1, history.head + 1)):
        raise OneOwner(f"it is not known who has stored the events up to {history.head}: {sorted(noted.items())}")


def check_tool_calls(history: History) -> None:
    """Raises ToolCallOnce."""
    for call_id, call in history.calls.items():
        if call.starts > 1:
            raise ToolCallOnce(f"{call_id} was carried out {call.starts} times")
        if call.output is not None and not call.starts:
            raise ToolCallOnce(f"{call_id} has the output {call.output!r}, and nobody has carried it out")
        taken = {output for output, is_taken in call.results if is_taken}
        if call.results and taken != {call.output}:
            raise ToolCallOnce(f"{call_id} has the output {call.output!r}, of {call.results}")


def check_approvals(history: History) -> None:
    """Raises FirstApprovalWins."""
    for permission_id, answers in history.approvals.items():
        accepted = {word for word, is_accepted in answers if is_accepted}
        refused = {word for word, is_accepted in answers if not is_accepted}
        if len(accepted) != 1 or accepted & refused:
            raise FirstApprovalWins(f"{permission_id} was answered: {answers}")
    told = sorted(history.replied)
    won = sorted({(one, word) for one, answers in history.approvals.items() for word, yes in answers if yes})
    if told != won:
        raise FirstApprovalWins(f"a watch has told of {told}, and accepted were {won}")


def check_host_texts(history: History) -> None:
    """Raises HostTextStays."""
    if sent := [text for text in history.host_texts if json.dumps(text)[1:-1] in history.sent]:
        raise HostTextStays(f"a model gets {sent}")
