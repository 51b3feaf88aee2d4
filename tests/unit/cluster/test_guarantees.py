"""The checks of what several nodes guarantee find what is broken: else a run without findings would prove nothing."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.cluster import guarantees
from tests.support.cluster.guarantees import GuaranteeBroken, History, ToolCall, Write, check

CONTRACT = Path(__file__).parents[3] / "docs/reference/contract.md"


def whole() -> History:
    """Returns a history in which nothing is broken."""
    return History(
        answers={"one": [("first", "msg_1"), ("first", "msg_1")], "two": [("second", "msg_3")]},
        stored=[[("msg_1", "first"), ("msg_2", "echo"), ("msg_3", "second")]] * 2,
        watched=[(1, ""), (2, "msg_1"), (3, "msg_2"), (4, "msg_2"), (5, "msg_3")],
        head=5,
        writes=[Write(sequence, "a" if sequence < 3 else "b", is_owner=True) for sequence in (1, 2, 0, 3, 4, 5)],
        calls={
            "run": ToolCall(1, [("mine", True), ("theirs", False)], "mine"),
            "of the server": ToolCall(1, output="done"),
            "cut": ToolCall(1),
            "rejected": ToolCall(),
        },
        approvals={"per_1": [("once", True), ("reject", False)], "per_2": [("reject", True), ("reject", True)]},
        replied=[("per_1", "once"), ("per_2", "reject")],
        host_texts=["The answer was cut off."],
        sent='{"messages": ["first", "second"]}',
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


def write_without_the_lock(history: History) -> None:
    """As when a node that stood still goes on with an answer that another one has ended."""
    history.writes[2] = Write(0, "a", is_owner=False)


def write_twice(history: History) -> None:
    """As when two nodes have a session."""
    history.writes.append(Write(5, "a", is_owner=True))


def write_unseen(history: History) -> None:
    """As when the database notes nothing: then no run proves anything."""
    history.writes = []


def run_twice(history: History) -> None:
    """As when a new owner runs a call again whose outcome it does not know."""
    history.calls["of the server"].starts = 2


def run_by_nobody(history: History) -> None:
    """As when a call gets the result of another one."""
    history.calls["rejected"].output = "done"


def claim_twice(history: History) -> None:
    """As when a new owner does not know of a lease."""
    history.calls["run"] = ToolCall(2, [("mine", False), ("theirs", True)], "theirs")


def take_two_results(history: History) -> None:
    """As when two nodes take one each."""
    history.calls["run"].results = [("mine", True), ("theirs", True)]


def refuse_the_holder(history: History) -> None:
    """As when a lease is lost with the node on which it was made."""
    history.calls["run"].results[0] = ("mine", False)


def keep_another_result(history: History) -> None:
    """As when a result that was taken is lost with its node."""
    history.calls["run"].output = None


def accept_two_answers(history: History) -> None:
    """As when two nodes take one each."""
    history.approvals["per_1"][1] = ("reject", True)


def accept_no_answer(history: History) -> None:
    """As when a takeover ends a request that is open."""
    history.approvals["per_1"][0] = ("once", False)


def refuse_the_same_answer(history: History) -> None:
    """As when a retry is taken for another answer."""
    history.approvals["per_2"][1] = ("reject", False)


def tell_of_the_loser(history: History) -> None:
    """As when an answer is published whose commit was rolled back."""
    history.replied[0] = ("per_1", "reject")


def tell_of_both(history: History) -> None:
    """As when both nodes tell of theirs."""
    history.replied.append(("per_1", "reject"))


def tell_of_no_answer(history: History) -> None:
    """As when a watch misses it."""
    del history.replied[0]


def send_a_host_text(history: History) -> None:
    """As when a new owner takes all that is stored for the conversation."""
    history.sent = '{"messages": ["first", "The answer was cut off.", "second"]}'


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
        (write_without_the_lock, "OneOwner"),
        (write_twice, "OneOwner"),
        (write_unseen, "OneOwner"),
        (run_twice, "ToolCallOnce"),
        (run_by_nobody, "ToolCallOnce"),
        (claim_twice, "ToolCallOnce"),
        (take_two_results, "ToolCallOnce"),
        (refuse_the_holder, "ToolCallOnce"),
        (keep_another_result, "ToolCallOnce"),
        (accept_two_answers, "FirstApprovalWins"),
        (accept_no_answer, "FirstApprovalWins"),
        (refuse_the_same_answer, "FirstApprovalWins"),
        (tell_of_the_loser, "FirstApprovalWins"),
        (tell_of_both, "FirstApprovalWins"),
        (tell_of_no_answer, "FirstApprovalWins"),
        (send_a_host_text, "HostTextStays"),
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
