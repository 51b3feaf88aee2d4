"""Changes by OpenCode's clients: sessions, prompts, replies to requests. Unsupported fields are refused by name."""

import json
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from google.protobuf.field_mask_pb2 import FieldMask

from opencode.message.message_pb2 import FilePart, MessagePart, SendMessageResponse, TextPart
from opencode.model.model_pb2 import ModelName
from opencode.question.question_pb2 import ListQuestionsRequest, Question
from opencode.question.question_pb2_grpc import QuestionServiceStub
from opencode.session.session_pb2 import (
    ArchiveSessionRequest,
    CreateSessionRequest,
    DeleteSessionRequest,
    ForkSessionRequest,
    RestoreSessionRequest,
    RevertSessionRequest,
    SessionInfo,
    SessionSettings,
    UnarchiveSessionRequest,
    UpdateSessionRequest,
)
from opencode.session.session_pb2_grpc import SessionServiceStub
from opencode.tool.tool_pb2 import ListPermissionsRequest, ListToolsRequest, PermissionRequest, PermissionResponse
from opencode.tool.tool_pb2_grpc import PermissionServiceStub, ToolServiceStub
from opencode.turn.turn_pb2 import BUSY_POLICY_QUEUE, GenerationOptions
from turnwire_adapters.opencode.ids import is_chosen
from turnwire_adapters.opencode.objects import (
    DIRECTORY_LABEL,
    OWN,
    PARENT_LABEL,
    Json,
)
from turnwire_adapters.opencode.questions import AnswerError, values_of
from turnwire_adapters.opencode.reading import PAGE_SIZE, Reader
from turnwire_client import FailedPreconditionError, NotFoundError, Settings

_MARKS = ("id", "synthetic", "ignored", "metadata")
"""Fields of a part besides its content that a client may set; kept with the message."""
_MAX_DIRECTORY = 256
"""Characters of a directory: it is the value of a label."""
_REPLIES = ("once", "always", "reject")


class BadRequestError(ValueError):
    """A request that is wrong, or that asks for what Turnwire has not; the message says which."""


class Writer:
    """Changes things for one caller. All of it raises TurnwireError and BadRequestError."""

    def __init__(self, reader: Reader) -> None:
        """Takes the reader of the same caller."""
        self._reader = reader
        self._client = reader.client
        self._sessions = reader.client.stub(SessionServiceStub)

    async def create(self, body: Json, directory: str) -> SessionInfo:
        """Creates a session.

        Args:
            body: Of POST /session.
            directory: Where the client runs; "" when it did not say so.
        """
        if len(directory) > _MAX_DIRECTORY:
            raise BadRequestError(f"directory: at most {_MAX_DIRECTORY} characters")
        await self._refuse_rules(body.get("permission"))
        labels = {DIRECTORY_LABEL: directory, PARENT_LABEL: _text(body, "parentID")}
        settings = SessionSettings(
            title=_text(body, "title"),
            agent=_text(body, "agent"),
            labels={name: value for name, value in labels.items() if value},
            metadata_json=_dumped(_object(body, "metadata")) if body.get("metadata") else "",
        )
        if model := _object(body, "model"):
            settings.model.CopyFrom(ModelName(provider_id=_text(model, "providerID"), model_id=_text(model, "id")))
            if variant := _text(model, "variant"):
                settings.options.CopyFrom(_options(variant))
        return await self._client.call(self._sessions.CreateSession, CreateSessionRequest(settings=settings))

    async def update(self, session_id: str, body: Json) -> None:
        """Changes a session: title, metadata, whether it is archived."""
        await self._refuse_rules(body.get("permission"))
        facts, time = _object(body, "metadata"), _object(body, "time")
        settings = SessionSettings(title=_text(body, "title"), metadata_json=_dumped(facts) if facts else "")
        fields = {"title": "title", "metadata": "metadata_json"}
        if paths := [path for name, path in fields.items() if name in body]:
            request = UpdateSessionRequest(session_id=session_id, settings=settings, update_mask=FieldMask(paths=paths))
            await self._client.call(self._sessions.UpdateSession, request)
        if "archived" in time:
            if time["archived"]:
                await self._client.call(self._sessions.ArchiveSession, ArchiveSessionRequest(session_id=session_id))
            else:
                unarchive = UnarchiveSessionRequest(session_id=session_id)
                await self._client.call(self._sessions.UnarchiveSession, unarchive)

    async def delete(self, session_id: str) -> None:
        """Deletes a session."""
        await self._client.call(self._sessions.DeleteSession, DeleteSessionRequest(session_id=session_id))

    async def send(self, session_id: str, body: Json) -> SendMessageResponse:
        """Sends a prompt: the body of POST message or prompt_async. The same `messageID` sends it once."""
        parts, settings = await self._prompt(body)
        if variant := _text(body, "variant"):
            settings["options"] = _options(variant)
        if system := _text(body, "system"):
            settings["system"] = system
        if agent := _text(body, "agent"):
            settings["agent"] = agent
        if model := _object(body, "model"):
            settings["model"] = f"{_text(model, 'providerID')}/{_text(model, 'modelID')}"
        return await self._client.send(parts, session_id, **settings)

    async def append(self, session_id: str, body: Json) -> str:
        """Stores a prompt that has `noReply`; returns Turnwire's id of the message."""
        parts, settings = await self._prompt(body)
        stored = await self._client.append(
            session_id, parts, metadata=settings["metadata"], request_id=settings["request_id"]
        )
        return stored.message_id

    async def fork(self, session_id: str, before: str) -> SessionInfo:
        """Copies a session: the conversation before a message, or all of it with ""."""
        found = (await self._reader.session(session_id)).session
        settings = SessionSettings()
        settings.CopyFrom(found.settings)
        settings.title = _fork_title(found.title)
        through = (await self._reader.message(session_id, before)).previous_message_id if before else ""
        if before and not through:
            return await self._client.call(self._sessions.CreateSession, CreateSessionRequest(settings=settings))
        request = ForkSessionRequest(
            session_id=session_id,
            through_message_id=through,
            settings=settings,
            settings_mask=FieldMask(paths=["title"]),
        )
        return (await self._client.call(self._sessions.ForkSession, request)).session

    async def revert(self, session_id: str, message_id: str) -> None:
        """Takes a message back with all behind it; what was taken back before comes back first."""
        first = await self._reader.message(session_id, message_id)
        await self.unrevert(session_id)
        request = RevertSessionRequest(session_id=session_id, before_message_id=first.message_id)
        await self._client.call(self._sessions.RevertSession, request)

    async def unrevert(self, session_id: str) -> None:
        """Brings back all that was taken back; nothing, when nothing is or a turn began since."""
        try:
            while True:  # each call brings back what one of them took back
                await self._client.call(self._sessions.RestoreSession, RestoreSessionRequest(session_id=session_id))
        except FailedPreconditionError as error:
            if error.reason != "NOTHING_TO_RESTORE":
                raise

    async def reply_to_permission(self, permission_id: str, reply: str, reason: str = "", session_id: str = "") -> None:
        """Answers a request for permission; of any session with "" as the session."""
        if reply not in _REPLIES:
            raise BadRequestError(f"reply: one of {', '.join(_REPLIES)}, not {reply!r:.50}")
        if not session_id:
            session_id = (await self._permission(permission_id)).session_id
        stub = self._client.stub(PermissionServiceStub)
        request = PermissionResponse(session_id=session_id, permission_id=permission_id, response=reply, reason=reason)
        await self._client.call(stub.RespondToPermission, request)

    async def permissions(self) -> list[PermissionRequest]:
        """Returns the open requests for permission of all sessions."""
        stub, request = self._client.stub(PermissionServiceStub), ListPermissionsRequest(page_size=PAGE_SIZE)
        return list((await self._client.call(stub.ListPermissions, request)).permissions)

    async def questions(self) -> list[Question]:
        """Returns the open questions of all sessions."""
        stub, request = self._client.stub(QuestionServiceStub), ListQuestionsRequest(page_size=PAGE_SIZE)
        return list((await self._client.call(stub.ListQuestions, request)).questions)

    async def answer_question(self, question_id: str, answers: Any) -> None:
        """Answers a question; declines it with None as the answers."""
        for question in await self.questions():
            if question.question_id != question_id:
                continue
            if answers is None:
                return await self._client.decline(question)
            try:
                return await self._client.answer(question, values_of(question, answers))
            except AnswerError as error:
                raise BadRequestError(str(error)) from None
        raise NotFoundError(f"there is no open question {question_id!r:.100}", reason="QUESTION_NOT_FOUND")

    async def _permission(self, permission_id: str) -> PermissionRequest:
        for found in await self.permissions():
            if found.id == permission_id:
                return found
        message = f"there is no open request {permission_id!r:.100}"
        raise NotFoundError(message, reason="PERMISSION_REQUEST_NOT_FOUND")

    async def _prompt(self, body: Json) -> tuple[list[MessagePart], Settings]:
        """Returns the content of a prompt, and what is kept with it."""
        given = body.get("parts")
        if not isinstance(given, list) or not all(isinstance(part, dict) for part in given):
            raise BadRequestError("parts: a list of parts is needed")
        if _text(_object(body, "format"), "type") not in ("", "text"):
            raise BadRequestError("format: Turnwire's adapter answers with text only")
        await self._refuse_tools(_object(body, "tools"))
        message_id = _text(body, "messageID")
        if message_id and not is_chosen(message_id):
            raise BadRequestError("messageID: msg_, 12 hexadecimal digits and 14 letters or digits")
        own: Json = {"parts": [{name: part[name] for name in _MARKS if name in part} for part in given]}
        if agent := _text(body, "agent"):
            own["agent"] = agent
        if model := _object(body, "model"):
            own["model"] = {"providerID": _text(model, "providerID"), "modelID": _text(model, "modelID")}
            if variant := _text(body, "variant"):
                own["model"]["variant"] = variant
        settings: Settings = {
            "metadata": {OWN: own},
            "request_id": message_id,
            "busy_policy": BUSY_POLICY_QUEUE,
            "tools": (),
        }
        return [_part(index, part) for index, part in enumerate(given)], settings

    async def _refuse_rules(self, rules: Any) -> None:
        """Raises BadRequestError unless all rules deny tools that the server does not have."""
        if not rules:
            return
        if not isinstance(rules, list) or not all(isinstance(rule, dict) for rule in rules):
            raise BadRequestError("permission: a list of rules is needed")
        names = await self._tool_names()
        for rule in rules:
            pattern = _text(rule, "permission")
            if rule.get("action") != "deny" or any(fnmatchcase(name, pattern) for name in names):
                raise BadRequestError(
                    f"permission: {pattern!r:.100}: rules are set in Turnwire's configuration, not by clients"
                )

    async def _refuse_tools(self, tools: Mapping[str, Any]) -> None:
        """Raises BadRequestError unless all tools are switched as they are on the server."""
        if not tools:
            return
        names = await self._tool_names()
        for name, is_on in tools.items():
            if is_on != (name in names):
                raise BadRequestError(f"tools: {name!r:.100}: Turnwire's agents choose the tools, not a message")

    async def _tool_names(self) -> set[str]:
        stub, names = self._client.stub(ToolServiceStub), set()
        request = ListToolsRequest(page_size=PAGE_SIZE)
        while True:
            page = await self._client.call(stub.ListTools, request)
            names |= {tool.name for tool in page.tools}
            if not page.next_page_token:
                return names
            request.page_token = page.next_page_token


def _part(index: int, part: Json) -> MessagePart:
    """Returns a part of a prompt in Turnwire's form."""
    match part.get("type"):
        case "text":
            return MessagePart(text=TextPart(text=_text(part, "text")))
        case "file":
            url = _text(part, "url")
            if not url.startswith("data:"):
                raise BadRequestError(f"parts[{index}].url: only data URLs: Turnwire reads no files of a client")
            return MessagePart(file=FilePart(mime=_text(part, "mime"), filename=_text(part, "filename"), url=url))
        case kind:
            raise BadRequestError(f"parts[{index}]: Turnwire has no parts of type {kind!r:.50}")


def _options(variant: str) -> GenerationOptions:
    return GenerationOptions(reasoning_effort=variant)


def _fork_title(title: str) -> str:
    """Returns a title with the number of the copy behind it, as OpenCode counts them."""
    head, mark, number = title.rpartition(" (fork #")
    digits = number.removesuffix(")")
    if mark and number.endswith(")") and digits.isdecimal():
        return f"{head} (fork #{int(digits) + 1})"
    return f"{title or 'New session'} (fork #1)"


def _text(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadRequestError(f"{name}: a text is needed")
    return value


def _object(body: Mapping[str, Any], name: str) -> Json:
    value = body.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadRequestError(f"{name}: an object is needed")
    return value


def _dumped(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
