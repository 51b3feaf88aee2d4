"""Contents of ChatGPT's messages. There is no published schema, so the text of unknown types is kept, and they are
reported.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from turnwire.domain.conversation.messages import Reasoning, Text
from turnwire.interop.archive.attachments import Attachment
from turnwire.interop.archive.conversation import ConversationBuilder
from turnwire.interop.archive.values import array, id_at, objects, text_at, within
from turnwire.interop.archive.zipped import Export
from turnwire.interop.forms import Json, a_text, kind_of, refuse

_UNKNOWN = "Left out: contents of a type that is not known, except for their text"
Found = Text | Reasoning | Attachment


class ContentReader:
    """Reads contents of one conversation."""

    def __init__(self, export: Export, conversation: ConversationBuilder) -> None:
        """Takes the source of the files, and the conversation that gets the problems."""
        self._export = export
        self._conversation = conversation
        self._uploaded: dict[str, Attachment] = {}
        self._readers: Mapping[str, Callable[[Json, str], list[Found]]] = {
            "text": self._parts,
            "multimodal_text": self._parts,
            "code": _code,
            "execution_output": _words("text"),
            "system_error": _words("name", "text"),
            "tether_quote": _words("title", "url", "text"),
            "tether_browsing_display": _words("summary", "result"),
            "sonic_webpage": _words("title", "url", "text"),
            "thoughts": self._thoughts,
            "reasoning_recap": _recap,
        }

    def of(self, content: Json, place: str, metadata: Json, metadata_place: str) -> list[Found]:
        """Returns the parts of a content, then the files that were uploaded with it and that it does not show.

        Empty texts give no part.

        Raises:
            InvalidRequest: a value has another type than in ChatGPT's exports.
        """
        self._uploaded = {
            id_at(item, "id", at): self._export.attachment(
                id_at(item, "id", at),
                mime=text_at(item, "mimeType", at) or text_at(item, "mime_type", at),
                filename=text_at(item, "name", at),
                place=at,
            )
            for item, at in objects(metadata, "attachments", metadata_place)
        }
        return [*self._content(content, place), *self._uploaded.values()]

    def _content(self, content: Json, place: str) -> list[Found]:
        kind = text_at(content, "content_type", place)
        read = self._readers.get(kind)
        if read is not None:
            return read(content, place)
        if kind or content:
            self._conversation.count("UNKNOWN_CONTENT", _UNKNOWN, place)
        texts = [content.get("text"), content.get("result"), *array(content, "parts", place)]
        return _texts(*(text for text in texts if isinstance(text, str)))

    def _parts(self, content: Json, place: str) -> list[Found]:
        found: list[Found] = []
        at = within(place, "parts")
        for index, part in enumerate(array(content, "parts", place)):
            where = f"{at}[{index}]"
            if isinstance(part, dict):
                found += self._part(part, where)
            elif part is not None:
                if not isinstance(part, str):
                    refuse(where, f"must be text or an object, not {kind_of(part)}")
                found += _texts(part)
        return found

    def _part(self, part: Json, place: str) -> list[Found]:
        match text_at(part, "content_type", place):
            case "image_asset_pointer" | "audio_asset_pointer" | "video_container_asset_pointer":
                return [self._file(text_at(part, "asset_pointer", place), place)]
            case "real_time_user_audio_video_asset_pointer":
                audio = part.get("audio_asset_pointer")
                pointer = text_at(audio, "asset_pointer", place) if isinstance(audio, dict) else ""
                return [self._file(pointer, place)]
            case "audio_transcription":
                return _texts(text_at(part, "text", place))
            case kind if kind in self._readers and kind not in ("text", "multimodal_text"):
                return self._readers[kind](part, place)
            case _:
                self._conversation.count("UNKNOWN_CONTENT", _UNKNOWN, place)
                return _texts(part["text"] if isinstance(part.get("text"), str) else "")

    def _file(self, pointer: str, place: str) -> Attachment:
        """Returns the file of a pointer such as "file-service://file-abc" or "sediment://file_abc#more"."""
        file_id = pointer.rpartition("://")[2].partition("#")[0].partition("?")[0][:256]
        named = self._uploaded.pop(file_id, None)
        if named is None:
            return self._export.attachment(file_id, place=place)
        return msgspec.structs.replace(named, place=place)

    def _thoughts(self, content: Json, place: str) -> list[Found]:
        found: list[Found] = []
        for item, at in objects(content, "thoughts", place):
            words = (text_at(item, "summary", at), text_at(item, "content", at))
            found += [Reasoning("\n".join(filter(None, words)))] if any(words) else []
        return found or [Reasoning(part.text) for part in self._parts(content, place) if isinstance(part, Text)]


def _texts(*texts: Any) -> list[Found]:
    return [Text(text) for text in texts if text]


def _words(*keys: str) -> Callable[[Json, str], list[Found]]:
    """Returns a reader of the texts at some keys, with a line for each."""
    return lambda content, place: _texts("\n".join(filter(None, (text_at(content, key, place) for key in keys))))


def _code(content: Json, place: str) -> list[Found]:
    """Returns only the code: whether it is a call or an answer decides how it is shown."""
    return _texts(text_at(content, "text", place))


def _recap(content: Json, place: str) -> list[Found]:
    text = content.get("content")
    words = "" if text is None else a_text(text, within(place, "content"))
    return [Reasoning(words)] if words else []
