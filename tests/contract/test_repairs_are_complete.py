"""What of a conversation is not in a request has a repair that says so.

Every piece of a random conversation gets a word of its own. Then each word is either in the body, or a repair names its
message and its part (or the whole message).
"""

import hashlib
import itertools
import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.models.wire_requests import BUILDERS, api_of, body_of, mostly_with, normal_run, only_with
from tests.support.oracles.histories import FILES, MODELS, PROVIDERS, Conversation, histories
from turnwire.domain.conversation.messages import (
    File,
    Message,
    MessageType,
    Part,
    ProviderContent,
    Reasoning,
    Refusal,
    Text,
    ToolResult,
    ToolStatus,
    ToolUse,
)
from turnwire.domain.repairs import Repair
from turnwire.ports.provider import PreparedRequest, ProviderRequest

replace = msgspec.structs.replace

Piece = tuple[Message, Part, tuple[str, ...]]
"""A message, its part, and words of which one must be in the body."""


class Marker:
    """Puts words of their own into all pieces of a conversation."""

    def __init__(self) -> None:
        """Starts with the files that conversations name."""
        self._numbers = itertools.count()
        self.files = dict(FILES)
        self.pieces: list[Piece] = []

    def marked(self, message: Message) -> Message:
        """Returns the message with its words."""
        found: list[tuple[Part, list[tuple[str, ...]]]] = [self._part(part) for part in message.parts]
        marked = replace(message, parts=tuple(part for part, _ in found))
        self.pieces += [(marked, part, words) for part, pieces in found for words in pieces]
        return marked

    def _word(self) -> str:
        return f"w{next(self._numbers)}w"

    def _part(self, part: Part) -> tuple[Part, list[tuple[str, ...]]]:
        """Returns the part with its words, and the words of each of its pieces."""
        state, state_word = self._state(part.provider_state)
        part = replace(part, provider_state=state)
        match part.content:
            case Text(text) | Refusal(text) if text.strip():
                word = self._word()
                content: Any = replace(part.content, text=f"{text} {word}")
                return replace(part, content=content), [(word,), *([(state_word,)] if state_word else [])]
            case Reasoning(text):
                # Sealed reasoning stands for its text.
                word = self._word()
                content = Reasoning(f"{text} {word}")
                return replace(part, content=content), [(word, state_word) if state_word else (word,)]
            case ProviderContent():
                return part, [(state_word or "no state, no trace",)]
            case File() as file:
                file, words = self._file(file)
                return replace(part, content=file), [words]
            case ToolResult() as result:
                word = self._word()
                return replace(part, content=replace(result, output=f"{result.output} {word}")), [(word,)]
            case ToolUse() as call:
                call, pieces = self._call(call)
                return replace(part, content=call), pieces
        return part, [("nothing stands for blank text",)]

    def _state(self, state: str | None) -> tuple[str | None, str]:
        """Returns the state with a word in what would be sent of it, and the word."""
        if state is None:
            return None, ""
        fields = json.loads(state)
        word = self._word()
        for name in set(fields) & {"signature", "phase"}:
            fields[name] = word
        for name in set(fields) & {"block", "item"}:
            fields[name]["word"] = word
        for name in set(fields) & {"citations", "reasoning_details"}:
            fields[name][0]["word"] = word
        return json.dumps(fields), word if word in json.dumps(fields) else ""

    def _file(self, file: File) -> tuple[File, tuple[str, ...]]:
        """Returns the file with a word in its content, if there is any, and how its content may be told."""
        if file.sha256 not in self.files:
            return file, ("no bytes, no trace",)
        word = self._word()
        data = self.files[file.sha256] + word.encode()
        sha256 = hashlib.sha256(data).hexdigest()
        self.files[sha256] = data
        return replace(file, sha256=sha256), (word, b64encode(data).decode())

    def _call(self, call: ToolUse) -> tuple[ToolUse, list[tuple[str, ...]]]:
        name, arguments, output, error = (self._word() for _ in range(4))
        pieces = [(name,), (arguments,)]
        fields: dict[str, Any] = {"name": f"{call.name}{name}"}
        try:
            given = json.loads(call.input_json or "{}")
            fields["input_json"] = json.dumps({**given, "word": arguments})
        except (ValueError, TypeError, RecursionError):
            fields["input_json"] = f"{call.input_json} {arguments}"
        if call.output and call.output.strip():
            fields["output"] = f"{call.output} {output}"
            pieces.append((output,))
        if call.error and call.error.strip() and call.status in (ToolStatus.ERROR, ToolStatus.CANCELLED):
            fields["error"] = f"{call.error} {error}"
            pieces.append((error,))
        if call.call_id:
            pieces.append((call.call_id,))
        files = [self._file(file) for file in call.files]
        pieces += [words for _, words in files]
        return replace(call, **fields, files=tuple(file for file, _ in files)), pieces


def unpublished(prepared: PreparedRequest, pieces: Sequence[Piece]) -> Iterator[tuple[str, Part]]:
    """Yields pieces that are neither in the body nor in a repair, each with the id of its message."""
    body = json.dumps(body_of(prepared), ensure_ascii=False)
    told = {(repair.message_id, repair.part_index) for repair in prepared.repairs}
    for message, part, words in pieces:
        named = {(message.message_id, part.index), (message.message_id, None)} & told
        if not named and not any(word in body for word in words):
            yield message.message_id, part


@pytest.mark.parametrize("talk", [mostly_with, only_with])
@pytest.mark.parametrize("dialect", BUILDERS)
@given(data=st.data(), provider=st.sampled_from(PROVIDERS), model=st.sampled_from(MODELS))
@normal_run
def test_what_is_not_sent_is_told(
    talk: Callable[[str, str, str], Conversation], dialect: str, data: st.DataObject, provider: str, model: str
) -> None:
    """Nothing of a conversation disappears without a word."""
    marker = Marker()
    history = tuple(map(marker.marked, data.draw(histories(talk(dialect, provider, model)))))
    changed = frozenset(message.message_id for message in history if data.draw(st.integers(0, 3)) == 0)
    request = ProviderRequest(model_id=model, system="", messages=history, files=marker.files, prefix_changed=changed)
    prepared = BUILDERS[dialect](request, provider)
    pieces = marker.pieces
    if api_of(dialect) == "openai_chat":
        # Blank text between others of an answer is sent: these join without anything between them.
        pieces = [piece for piece in pieces if piece[0].type is not MessageType.ASSISTANT or not is_blank(piece[1])]
    assert list(unpublished(prepared, pieces)) == []
    assert in_order(prepared.repairs, history)


def is_blank(part: Part) -> bool:
    """Tells whether this is blank text."""
    return isinstance(part.content, Text | Refusal) and not part.content.text.strip()


def in_order(repairs: Sequence[Repair], history: Sequence[Message]) -> bool:
    """Tells whether repairs come in the order of the messages and their parts, those of the whole request last."""
    ids = [message.message_id for message in history]
    places = [
        (ids.index(r.message_id) if r.message_id else len(ids), -1 if r.part_index is None else r.part_index)
        for r in repairs
    ]
    return places == sorted(places)
