"""Display forms in pieces, and what of them is kept."""

import msgspec
import pytest

from tests.support.fakes.domain_values import make_answer, make_message, make_part
from turnwire.api.wire import display
from turnwire.api.wire.display import MANY_PARTS, MAX_KEPT, DisplayForms, display_form
from turnwire.domain.conversation.messages import Content, Message, Reasoning, Refusal, Text, ToolUse


def calls(count: int, message_id: str = "msg_1") -> Message:
    """Returns a message with calls."""
    parts = (make_part(n, ToolUse(name="look", call_id=f"c{n}", input_json="{}")) for n in range(count))
    return make_message(message_id, *parts)


def with_part(message: Message, index: int) -> Message:
    """Returns a message with another part."""
    parts = list(message.parts)
    parts[index] = make_part(index, Text(f"the {index}th"))
    return msgspec.structs.replace(message, parts=tuple(parts))


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The indexes of the parts that are encoded."""
    found: list[int] = []
    encode = display._encoded
    monkeypatch.setattr(display, "_encoded", lambda part, before=0: found.append(part.index) or encode(part, before))
    return found


def test_only_other_parts_of_long_messages_are_encoded_again(encoded: list[int]) -> None:
    """The form is that of the whole message each time; also when parts are fewer or more than before."""
    forms, message = DisplayForms(), calls(MANY_PARTS + 4)
    second = with_part(message, 3)
    versions = [message, second, with_part(second, 7), calls(MANY_PARTS)]
    made = [forms.form(version) for version in versions[:3]]
    assert encoded == [*range(MANY_PARTS + 4), 3, 7]
    made.append(forms.form(versions[3]))
    assert made == [display_form(version) for version in versions]


def test_short_messages_and_old_ones_are_not_kept(encoded: list[int]) -> None:
    """What is kept is bounded by the number of messages, the last used ones."""
    forms = DisplayForms()
    forms.form(calls(MANY_PARTS - 1, "msg_short"))
    messages = [calls(MANY_PARTS, f"msg_{n}") for n in range(MAX_KEPT + 1)]
    for message in messages:
        forms.form(message)
    assert set(forms._kept) == {message.message_id for message in messages[1:]}
    encoded.clear()
    forms.form(messages[1])
    assert encoded == []


@pytest.mark.parametrize("kind", [Text, Reasoning, Refusal, ToolUse])
def test_the_end_of_a_text_is_enough(kind: type[Content]) -> None:
    """When it is told how many bytes come before it, the pieces are those of the whole message."""

    def message(text: str) -> Message:
        content = ToolUse(name="n", call_id="c", input_json=text) if kind is ToolUse else kind(text)  # type: ignore[call-arg]
        return make_answer("msg_1", make_part(0, content), make_part(1, Text("b")))

    whole = display_form(message("ä" * 1000 + "end"))
    for text, before in (("end", 2000), ("", 2003)):
        assert display_form(message(text), {0: before}) == whole
        assert DisplayForms().form(message(text), {0: before}) == whole
