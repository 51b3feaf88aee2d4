"""The checks of what several nodes guarantee find what is broken: else a run without findings would prove nothing."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.cluster import guarantees
from tests.support.cluster.guarantees import GuaranteeBroken, History, check

CONTRACT = Path(__file__).parents[3] / "docs/reference/contract.md"


def whole() -> History:
    """Returns a history in which nothing is broken."""
    return History(
        answers={"one": [("first", "msg_1"), ("first", "msg_1")], "two": [("second", "msg_3")]},
        stored=[[("msg_1", "first"), ("msg_2", "echo"), ("msg_3", "second")]] * 2,
        watched=[(1, ""), (2, "msg_1"), (3, "msg_2"), (4, "msg_2"), (5, "msg_3")],
        head=5,
    )


def lose_a_message(history: History) -> None:
    """As when a commit is lost with its node."""
    history.stored = [[one for one in node if one[1] != "second"] for node in history.stored]


def store_twice(history: History) -> None:
    """As when a call is repeated that was carried out."""
    history.stored = [[*node, ("msg_4", "second")] for node in history.stored]


def answer_otherwise(history: History) -> None:
    """As when two nodes carry one name out."""
    history.answers["one"].append(("first", "msg_9"))


def miss_an_event(history: History) -> None:
    """As with a token of a place that is too late."""
    del history.watched[2]


def miss_the_last_event(history: History) -> None:
    """As when a watch ends without an error."""
    del history.watched[-1]


def tell_twice(history: History) -> None:
    """As with a token of a place that is too early."""
    history.watched.insert(3, history.watched[2])


def tell_late(history: History) -> None:
    """As when an event of a former owner comes behind those of the new one."""
    history.watched.append(history.watched.pop(1))


def tell_of_nothing(history: History) -> None:
    """As when an event is published whose commit was rolled back."""
    history.watched[0] = (1, "msg_9")


def answer_of_before(history: History) -> None:
    """As when a node answers from memory for a session that another one has."""
    history.stored[1] = history.stored[1][:-1]


def test_a_whole_history_passes() -> None:
    """Else every run would fail."""
    check(whole())


@pytest.mark.parametrize(
    ("breaking", "name"),
    [
        (lose_a_message, "AcknowledgedOnce"),
        (store_twice, "AcknowledgedOnce"),
        (answer_otherwise, "NamedOnce"),
        (miss_an_event, "SequencesWithoutGaps"),
        (miss_the_last_event, "SequencesWithoutGaps"),
        (tell_twice, "SequencesWithoutGaps"),
        (tell_late, "SequencesWithoutGaps"),
        (tell_of_nothing, "WatchEqualsStore"),
        (answer_of_before, "NodesAgree"),
    ],
)
def test_a_broken_one_fails_by_its_name(breaking: Callable[[History], None], name: str) -> None:
    """One case for each way in which nodes may break it."""
    history = whole()
    breaking(history)
    kind: type[GuaranteeBroken] = getattr(guarantees, name)
    with pytest.raises(kind):
        check(history)


def test_the_contract_names_them_all() -> None:
    """With the same names and the same sentences."""
    section = CONTRACT.read_text().partition("## Guarantees with names\n")[2].partition("\n## ")[0]
    documented = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", section, re.MULTILINE))
    assert documented == {kind.__name__: kind.__doc__ for kind in GuaranteeBroken.__subclasses__()}
