"""The form of a vector's file, written and read; clients/vectors/README.md describes it."""

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import Message

from opencode.event.event_pb2 import WatchEventsResponse
from opencode.message.message_pb2 import ListMessagesResponse
from opencode.session.session_pb2 import SessionStatus
from tests.support.vectors.retelling import Retold

FOLDER = Path(__file__).parents[3] / "clients/vectors"


@dataclass
class Vector:
    """A vector as its file has it."""

    name: str
    description: str
    start: ListMessagesResponse | None
    batches: list[WatchEventsResponse]
    want: dict[str, Any]


def text_of(vector: Retold) -> str:
    """Returns the text of a file."""
    want = vector.want
    content: dict[str, Any] = {"description": vector.description}
    if vector.start is not None:
        content["start"] = _json(vector.start)
    content["batches"] = [
        base64.b64encode(batch.SerializeToString(deterministic=True)).decode() for batch in vector.batches
    ]
    content["want"] = {
        "messages": [_json(message) for message in want.messages],
        "waiting": want.waiting,
        "waiting_messages": [_json(message) for message in want.waiting_messages],
        "permissions": want.permissions,
        "questions": want.questions,
        "status": SessionStatus.Name(want.status),
        "session": None if want.session is None else _json(want.session),
        "deleted": want.deleted,
        "needs_reread": want.needs_reread,
        "resume_token": vector.resume_token,
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _json(message: Message) -> Any:
    return MessageToDict(message)


def read(path: Path) -> Vector:
    """Returns the vector of a file."""
    content = json.loads(path.read_text("utf-8"))
    start = ParseDict(content["start"], ListMessagesResponse()) if "start" in content else None
    batches = [WatchEventsResponse.FromString(base64.b64decode(batch)) for batch in content["batches"]]
    return Vector(path.stem, content["description"], start, batches, content["want"])


def vectors() -> list[Path]:
    """Returns the files of all vectors, by name."""
    return sorted(FOLDER.glob("*.json"))
