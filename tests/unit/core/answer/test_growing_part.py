"""The text of a part that grows: what readers see, and what each draft has."""

from hypothesis import given
from hypothesis import strategies as st

from turnwire.core.answer.growing_part import LOOSE_DELTAS, GrowingPart
from turnwire.domain.conversation.messages import PartStatus, Text


def test_readers_of_one_moment_share_the_text() -> None:
    """Hundreds of watches that join a long answer hold it once; a save between them changes nothing."""
    part = GrowingPart("prt_1", 0, Text)
    for piece in ("long" * 10_000, "longer" * 10_000):
        part.add(piece, len(piece))
        shown = part.text()
        assert part.text() is shown
        part.take_draft()
        assert part.text() is shown
        assert part.value().content == Text(shown)


STEPS = st.lists(st.sampled_from(["add", "many", "text", "take", "fail", "replace"]), max_size=30)


@given(STEPS)
def test_drafts_have_all_of_the_text_in_order(steps: list[str]) -> None:
    """However readers, saves and failed saves follow each other."""
    part, whole, saved = GrowingPart("prt_1", 0, Text), "", ""
    for number, step in enumerate([*steps, "end"]):
        match step:
            case "add" | "many":
                for delta in [f"é{number}"] * (1 if step == "add" else LOOSE_DELTAS + 1):
                    whole += delta
                    part.add(delta, len(delta.encode()))
            case "text":
                assert part.text() == whole
            case "replace":
                whole = f"another {number}"
                part.replace(whole)
            case "take" | "end":
                if step == "end":
                    part.status = PartStatus.COMPLETE
                draft = part.take_draft()
                assert isinstance(draft.part.content, Text)
                saved = (saved if draft.continues else "") + draft.part.content.text
                assert (saved, draft.part.status, part.size) == (whole, part.status, len(whole.encode()))
            case _:
                part.draft_anew()
                saved = ""
    assert part.text() == whole
