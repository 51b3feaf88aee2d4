"""The text of a part that grows: what readers see, and what each save has."""

import gc

from hypothesis import given
from hypothesis import strategies as st

from turnwire.core.answer.growing_part import LOOSE_DELTAS, GrowingPart
from turnwire.domain.conversation.messages import PartStatus, Text, ToolUse
from turnwire.ports.commit import Growth


def test_readers_of_one_moment_share_the_text() -> None:
    """Hundreds of watches that join a long answer hold it once; a save between them changes nothing."""
    part = GrowingPart("prt_1", 0, Text)
    for piece in ("long" * 10_000, "longer" * 10_000):
        part.add(piece, len(piece))
        shown = part.text()
        assert part.text() is shown
        part.take_growth()
        assert part.text() is shown
        assert part.value().content == Text(shown)


def test_the_outline_of_a_part_tells_its_length_as_it_is() -> None:
    """While it grows it is made anew; that of a complete part is one value, for an answer may have thousands."""
    part = GrowingPart("prt_1", 2, Text)
    for length in (2, 4):
        part.add("é", 2)
        shown, growth = part.outline()
        assert (shown.content, shown.status, growth) == (Text(""), PartStatus.STREAMING, Growth(2, length))
    part.status = PartStatus.COMPLETE
    outline = part.outline()
    assert (outline[0].status, outline[1]) == (PartStatus.COMPLETE, Growth(2, 4))
    assert part.outline() is outline


STEPS = st.lists(st.sampled_from(["add", "many", "text", "take", "fail"]), max_size=30)


@given(STEPS)
def test_saves_have_all_of_the_text_in_order(steps: list[str]) -> None:
    """However readers, saves and failed saves follow each other."""
    part, whole, saved = GrowingPart("prt_1", 0, Text), "", b""
    for number, step in enumerate([*steps, "take"]):
        match step:
            case "add" | "many":
                for delta in [f"é{number}"] * (1 if step == "add" else LOOSE_DELTAS + 1):
                    whole += delta
                    part.add(delta, len(delta.encode()))
            case "text":
                assert part.text() == whole
            case "take":
                growth, new = part.take_growth()
                saved = saved[: growth.offset] + new.encode()
                assert saved == whole.encode()
            case _:
                part.save_anew()
                saved = b""
    part.join()
    assert part.text() == whole


def test_the_garbage_collector_notices_thousands_of_parts_that_end() -> None:
    """It counts new objects less those that go: lists in place of lists would wait in their thousands, all at once."""
    parts = [GrowingPart(f"prt_{number}", number, ToolUse) for number in range(5_000)]
    for part in parts:
        part.add("{}", 2)
    gc.collect()
    for part in parts:
        part.join()
        part.take_growth()
    assert len(gc.get_objects(generation=0)) < len(parts)
