"""The checks of what several nodes guarantee find what is broken: else a run without findings would prove nothing."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import guarantees as g
from tests.support.cluster.guarantees import GuaranteeBroken, History, ToolCall, Write, check

CONTRACT = Path(__file__).parents[3] / "docs/reference/contract.md"


ANSWERS = {"one": [("first", "msg_1"), ("first", "msg_1")], "two": [("second", "msg_3")]}
STORED = [("msg_1", "first"), ("msg_2", "echo"), ("msg_3", "second")]
WATCHED = [(1, ""), (2, "msg_1"), (3, "msg_2"), (4, "msg_2"), (5, "msg_3")]
WRITES = [Write(sequence, "a" if sequence < 3 else "b", is_owner=True) for sequence in (1, 2, 0, 3, 4, 5)]
CALLS = {
    "run": ToolCall(1, [("mine", True), ("theirs", False)], "mine"),
    "of the server": ToolCall(1, output="done"),
    "cut": ToolCall(1),
    "rejected": ToolCall(),
}
APPROVALS = {"per_1": [("once", True), ("reject", False)], "per_2": [("reject", True), ("reject", True)]}
REPLIED = [("per_1", "once"), ("per_2", "reject")]
HOST_TEXT = "The answer was cut off."
WHOLE = History(
    answers=ANSWERS,
    stored=[STORED] * 2,
    watched=WATCHED,
    head=5,
    writes=WRITES,
    calls=CALLS,
    approvals=APPROVALS,
    replied=REPLIED,
    host_texts=[HOST_TEXT],
    sent='{"messages": ["first", "second"]}',
)
"""A history in which nothing is broken."""


def test_a_whole_history_passes() -> None:
    """Else every run would fail."""
    check(WHOLE)


BROKEN: dict[str, tuple[type[GuaranteeBroken], dict[str, Any]]] = {
    "a commit is lost with its node": (g.AcknowledgedOnce, {"stored": [STORED[:-1]] * 2}),
    "a call is repeated that was carried out": (g.AcknowledgedOnce, {"stored": [[*STORED, ("msg_4", "second")]] * 2}),
    "two nodes carry one name out": (
        g.NamedOnce,
        {"answers": {**ANSWERS, "one": [("first", "msg_1"), ("first", "msg_9")]}},
    ),
    "a token is of a place that is too late": (g.SequencesWithoutGaps, {"watched": [*WATCHED[:2], *WATCHED[3:]]}),
    "a watch ends without an error": (g.SequencesWithoutGaps, {"watched": WATCHED[:-1]}),
    "a token is of a place that is too early": (g.SequencesWithoutGaps, {"watched": [*WATCHED[:3], *WATCHED[2:]]}),
    "an event of a former owner comes late": (
        g.SequencesWithoutGaps,
        {"watched": [WATCHED[0], *WATCHED[2:], WATCHED[1]]},
    ),
    "the commit of a published event was rolled back": (g.WatchEqualsStore, {"watched": [(1, "msg_9"), *WATCHED[1:]]}),
    "a node answers from memory for a session of another": (g.NodesAgree, {"stored": [STORED, STORED[:-1]]}),
    "a node that stood still goes on with an answer": (
        g.OneOwner,
        {"writes": [*WRITES[:2], Write(0, "a", is_owner=False), *WRITES[3:]]},
    ),
    "two nodes have a session": (g.OneOwner, {"writes": [*WRITES, Write(5, "a", is_owner=True)]}),
    "the database notes nothing, so no run proves anything": (g.OneOwner, {"writes": []}),
    "a new owner runs a call again": (
        g.ToolCallOnce,
        {"calls": {**CALLS, "of the server": ToolCall(2, output="done")}},
    ),
    "a call gets the result of another one": (
        g.ToolCallOnce,
        {"calls": {**CALLS, "rejected": ToolCall(output="done")}},
    ),
    "a new owner does not know of a lease": (
        g.ToolCallOnce,
        {"calls": {**CALLS, "run": ToolCall(2, [("mine", False), ("theirs", True)], "theirs")}},
    ),
    "two nodes take a result each": (
        g.ToolCallOnce,
        {"calls": {**CALLS, "run": ToolCall(1, [("mine", True), ("theirs", True)], "mine")}},
    ),
    "a lease is lost with the node on which it was made": (
        g.ToolCallOnce,
        {"calls": {**CALLS, "run": ToolCall(1, [("mine", False), ("theirs", False)], "mine")}},
    ),
    "a result that was taken is lost with its node": (
        g.ToolCallOnce,
        {"calls": {**CALLS, "run": ToolCall(1, [("mine", True), ("theirs", False)])}},
    ),
    "two nodes take an answer each": (
        g.FirstApprovalWins,
        {"approvals": {**APPROVALS, "per_1": [("once", True), ("reject", True)]}},
    ),
    "a takeover ends a request that is open": (
        g.FirstApprovalWins,
        {"approvals": {**APPROVALS, "per_1": [("once", False), ("reject", False)]}},
    ),
    "a retry is taken for another answer": (
        g.FirstApprovalWins,
        {"approvals": {**APPROVALS, "per_2": [("reject", True), ("reject", False)]}},
    ),
    "the commit of a published answer was rolled back": (
        g.FirstApprovalWins,
        {"replied": [("per_1", "reject"), REPLIED[1]]},
    ),
    "both nodes tell of their answers": (g.FirstApprovalWins, {"replied": [*REPLIED, ("per_1", "reject")]}),
    "a watch misses an answer": (g.FirstApprovalWins, {"replied": REPLIED[1:]}),
    "a new owner sends all that is stored": (
        g.HostTextStays,
        {"sent": f'{{"messages": ["first", "{HOST_TEXT}", "second"]}}'},
    ),
}
"""Ways in which nodes may break a guarantee: its name, and what is changed in a whole history."""


@pytest.mark.parametrize(("kind", "fields"), BROKEN.values(), ids=BROKEN)
def test_a_broken_one_fails_by_its_name(kind: type[GuaranteeBroken], fields: dict[str, Any]) -> None:
    """One case for each way in which nodes may break it."""
    with pytest.raises(kind):
        check(dataclasses.replace(WHOLE, **fields))


def test_the_contract_names_them_all() -> None:
    """With the same names and the same sentences."""
    section = CONTRACT.read_text().partition("## Guarantees with names\n")[2].partition("\n## ")[0]
    documented = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", section, re.MULTILINE))
    assert documented == {kind.__name__: kind.__doc__ for kind in GuaranteeBroken.__subclasses__()}
