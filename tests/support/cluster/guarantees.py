"""The guarantees of docs/reference/contract.md that faults of nodes may break, each with its check and its error."""

from collections import Counter
from dataclasses import dataclass, field


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


def check(history: History) -> None:
    """Raises a GuaranteeBroken."""
    check_acknowledged_once(history)
    check_named_once(history)
    check_sequences(history)
    check_watch(history)
    check_nodes(history)


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
