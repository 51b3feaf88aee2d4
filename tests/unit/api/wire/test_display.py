"""Display forms in pieces, and what of them is kept."""

import msgspec
import pytest

from tests.support.fakes.domain_values import make_message, make_part
from turnwire.api.wire import display
from turnwire.api.wire.display import MANY_PARTS, MAX_KEPT, DisplayForms, display_form
from turnwire.domain.conversation.messages import Message, Text, ToolUse


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
    monkeypatch.setattr(display, "_encoded", lambda part: found.append(part.index) or encode(part))
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
