"""Reads of OpenCode's clients: sessions, conversations, and messages by the ids that they know."""

import base64
import contextlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping

from opencode.file.file_pb2 import DownloadFileRequest, FileRef
from opencode.file.file_pb2_grpc import FileServiceStub
from opencode.message.content_pb2 import (
    MESSAGE_STATUS_QUEUED,
    MESSAGE_TYPE_ASSISTANT,
    MESSAGE_TYPE_USER,
    Part,
    SessionMessage,
)
from opencode.message.message_pb2 import GetMessageRequest, ListMessagesRequest, ListMessagesResponse
from opencode.message.message_pb2_grpc import MessageServiceStub
from opencode.provider.provider_pb2 import GetProvidersRequest, ProviderList
from opencode.provider.provider_pb2_grpc import ProviderServiceStub
from opencode.session.session_pb2 import GetSessionRequest, GetSessionResponse, SessionInfo
from opencode.session.session_pb2_grpc import SessionServiceStub
from turnwire_adapters.doors import is_of_door
from turnwire_adapters.opencode.ids import is_chosen, stored
from turnwire_adapters.opencode.objects import (
    Json,
    Question,
    assistant_json,
    default_model,
    message_id_of,
    part_json,
    question_of,
    session_json,
    user_json,
)
from turnwire_client import Client, NotFoundError

PAGE_SIZE = 1_000
"""Page size for lists that are read to their end; a server returns no more at once."""
_KEPT = 20_000
"""Messages of users whose facts are kept: those of the answers that are shown most often are among them."""
_KEPT_HIDDEN = 200
"""Sessions of which it is kept what they hide, at most 1,000 messages each; those that changed last."""
_TURN_PAGE_SIZE = 20
"""Messages that are read at once to find those of the newest turn."""


class Known:
    """Bounded cache of facts that were read for any caller.

    Facts of user messages never change: what is forgotten of them is read again. What a session hides is known only
    until a turn makes it final, and is told to clients when that begins.
    """

    def __init__(self) -> None:
        """Begins with none."""
        self._questions: OrderedDict[str, Question] = OrderedDict()
        self._stored: dict[tuple[str, str], str] = {}
        """Turnwire's ids by session and id as clients know it, for ids that clients chose."""
        self._hidden: OrderedDict[str, tuple[int, tuple[str, ...]]] = OrderedDict()
        """By session: ids in Turnwire of what it hid, and could restore, at a sequence."""

    def of(self, message: SessionMessage) -> Question:
        """Returns the facts of a user message, and keeps them."""
        question = question_of(message)
        self._questions[message.message_id] = question
        self._questions.move_to_end(message.message_id)
        self._stored[message.session_id, question.message_id] = message.message_id
        while len(self._questions) > _KEPT:
            self._questions.popitem(last=False)
        if len(self._stored) > 2 * _KEPT:
            self._stored.clear()
        return question

    def get(self, message_id: str) -> Question | None:
        """Returns the facts of a message by its id in Turnwire."""
        return self._questions.get(message_id)

    def note_hidden(self, found: GetSessionResponse) -> None:
        """Keeps what a session hides, when it can be restored."""
        session_id, sequence = found.session.id, found.session.head_sequence
        if found.restorable_message_ids and self.hidden(session_id)[0] < sequence:
            self._hidden[session_id] = sequence, tuple(found.restorable_message_ids)
            self._hidden.move_to_end(session_id)
            while len(self._hidden) > _KEPT_HIDDEN:
                self._hidden.popitem(last=False)

    def hidden(self, session_id: str) -> tuple[int, tuple[str, ...]]:
        """Returns a sequence, and what the session hid there: 0 and nothing, when that is not known."""
        return self._hidden.get(session_id, (0, ()))

    def stored(self, session_id: str, shown_id: str) -> str:
        """Returns Turnwire's id of a message that was seen; "" for one that was not."""
        return self._stored.get((session_id, shown_id), "")


class Reader:
    """Reads for one caller. All of it raises TurnwireError."""

    def __init__(self, client: Client, known: Known) -> None:
        """Args:
        client: Of the caller.
        known: Of the application.
        """
        self.client = client
        self.known = known
        self._providers: ProviderList | None = None

    async def session(self, session_id: str) -> GetSessionResponse:
        """Returns a session with what it has used and what it hides."""
        stub = self.client.stub(SessionServiceStub)
        found = await self.client.call(stub.GetSession, GetSessionRequest(session_id=session_id))
        self.known.note_hidden(found)
        return found

    async def is_listed(self, session_id: str) -> bool:
        """Returns whether clients know of a session: it is there, and not of a single request."""
        try:
            return not is_of_door((await self.session(session_id)).session)
        except NotFoundError:
            return False

    async def session_json(self, found: GetSessionResponse, directory: str = "") -> Json:
        """Returns a Session with its cost and what is taken back. A session without a directory shows `directory`."""
        hidden = found.restorable_message_ids
        revert = await self.shown_id(found.session.id, hidden[0]) if hidden else ""
        cost = found.cost_pico_usd if found.HasField("cost_pico_usd") else None
        return session_json(found.session, directory=directory, usage=found.usage, cost_pico_usd=cost, revert=revert)

    async def shown_id(self, session_id: str, message_id: str) -> str:
        """Returns the id by which clients know a message, which may be taken back. Raises NotFoundError."""
        if (known := self.known.get(message_id)) is not None:
            return known.message_id
        return message_id_of(await self._get(session_id, message_id))

    async def providers(self) -> ProviderList:
        """Returns the providers."""
        if self._providers is None:
            stub = self.client.stub(ProviderServiceStub)
            self._providers = await self.client.call(stub.GetProviders, GetProvidersRequest())
        return self._providers

    async def page(self, session_id: str, page_size: int, page_token: str = "") -> ListMessagesResponse:
        """Returns a page of a conversation, newest first."""
        stub = self.client.stub(MessageServiceStub)
        request = ListMessagesRequest(
            session_id=session_id, page_size=page_size, page_token=page_token, newest_first=True
        )
        return await self.client.call(stub.ListMessages, request)

    async def conversation(self, session_id: str, limit: int = 0, before: str = "") -> tuple[list[SessionMessage], str]:
        """Returns messages of a conversation, oldest first, and where older ones go on ("" when there are none).

        Args:
            session_id: The session.
            limit: Most messages, the newest ones; 0 for all.
            before: Where to go on.
        """
        newest_first: list[SessionMessage] = []
        token = before
        while True:
            page = await self.page(session_id, min(limit, PAGE_SIZE) or PAGE_SIZE, token)
            newest_first += page.messages
            token = page.next_page_token
            if not token or (limit and len(newest_first) >= limit):
                return newest_first[::-1], token

    async def turn(self, session_id: str, user_message_id: str) -> tuple[list[SessionMessage], int]:
        """Returns a user message and all behind it, oldest first, and the session's sequence when they were read.

        With "" as the message: the newest user message that does not wait, and all behind it.
        """
        newest_first: list[SessionMessage] = []
        page = await self.page(session_id, _TURN_PAGE_SIZE)
        sequence = page.sequence
        while True:
            for message in page.messages:
                newest_first.append(message)
                is_question = message.type == MESSAGE_TYPE_USER and message.status != MESSAGE_STATUS_QUEUED
                if message.message_id == user_message_id or (is_question and not user_message_id):
                    return newest_first[::-1], sequence
            if not page.next_page_token:
                return newest_first[::-1], sequence
            page = await self.page(session_id, _TURN_PAGE_SIZE, page.next_page_token)

    async def message(self, session_id: str, shown_id: str) -> SessionMessage:
        """Returns a message by the id that clients know. Raises NotFoundError when there is none."""
        for found in (stored(shown_id), self.known.stored(session_id, shown_id)):
            if found:
                try:
                    return await self._get(session_id, found)
                except NotFoundError as error:
                    if error.reason != "MESSAGE_NOT_FOUND":
                        raise
        if is_chosen(shown_id):
            request = GetMessageRequest(session_id=session_id, message_request_id=shown_id)
            with contextlib.suppress(NotFoundError):
                return (await self.client.call(self.client.stub(MessageServiceStub).GetMessage, request)).message
        raise NotFoundError(f"the session has no message {shown_id[:100]!r}", reason="MESSAGE_NOT_FOUND")

    async def question(self, message: SessionMessage) -> Question:
        """Returns what an answer shows of the message that it answers."""
        asked = message.answers_message_id or message.previous_message_id
        while asked:
            if (known := self.known.get(asked)) is not None:
                return known
            try:
                found = await self._get(message.session_id, asked)
            except NotFoundError:
                break
            if found.type == MESSAGE_TYPE_USER:
                return self.known.of(found)
            asked = found.answers_message_id or found.previous_message_id
        return Question("msg_none")

    async def info(self, message: SessionMessage, session: SessionInfo, model: Mapping[str, str] | None = None) -> Json:
        """Returns a Message.

        Args:
            message: Of type USER or ASSISTANT.
            session: Its session.
            model: The model that answered it, if that is known: what a message shows that named none.
        """
        if message.type == MESSAGE_TYPE_ASSISTANT:
            return assistant_json(message, await self.question(message), session)
        question = self.known.of(message)
        if not question.model and not model:
            model = await self._model(session)
        return user_json(message, question, session, model or {})

    async def parts(self, message: SessionMessage) -> list[Json]:
        """Returns the Parts of a message."""
        question = self.known.of(message) if message.type == MESSAGE_TYPE_USER else None
        found = []
        for part in message.parts:
            given = question.parts[part.index] if question and part.index < len(question.parts) else None
            found.append(await self.part(message, part, given))
        return [part for part in found if part is not None]

    async def part(self, message: SessionMessage, part: Part, given: Json | None = None) -> Json | None:
        """Returns a Part; None for content that OpenCode has no part for."""
        is_file = part.WhichOneof("content") == "file"
        url = await self._data_url(message.session_id, part.file) if is_file else ""
        made = part_json(part, message, message_id_of(message), given, url)
        if made is not None and made.get("type") == "tool" and part.tool_use.files:
            made["state"]["attachments"] = [
                {
                    "id": f"{made['id']}{index}",
                    "sessionID": message.session_id,
                    "messageID": made["messageID"],
                    "type": "file",
                    "mime": file.mime,
                    "url": await self._data_url(message.session_id, file),
                }
                for index, file in enumerate(part.tool_use.files)
            ]
        return made

    async def shown(self, messages: Iterable[SessionMessage], session: SessionInfo) -> list[Json]:
        """Returns messages with their parts, in the form of a list: without types that OpenCode has not."""
        listed = [one for one in messages if one.type in (MESSAGE_TYPE_USER, MESSAGE_TYPE_ASSISTANT)]
        models = {
            one.answers_message_id: {
                "providerID": one.model_run.provider_id,
                "modelID": one.model_run.model_requested,
            }
            for one in listed
            if one.type == MESSAGE_TYPE_ASSISTANT
        }
        return [
            {
                "info": await self.info(one, session, models.get(one.message_id, {})),
                "parts": await self.parts(one),
            }
            for one in listed
        ]

    async def _get(self, session_id: str, message_id: str) -> SessionMessage:
        stub = self.client.stub(MessageServiceStub)
        request = GetMessageRequest(session_id=session_id, message_id=message_id)
        return (await self.client.call(stub.GetMessage, request)).message

    async def _model(self, session: SessionInfo) -> dict[str, str]:
        if session.settings.HasField("model"):
            model = session.settings.model
            return {"providerID": model.provider_id, "modelID": model.model_id}
        return default_model(await self.providers())

    async def _data_url(self, session_id: str, file: FileRef) -> str:
        stub = self.client.stub(FileServiceStub)
        request = DownloadFileRequest(session_id=session_id, sha256=file.sha256)
        content = bytearray()
        async with contextlib.aclosing(self.client.stream(stub.DownloadFile, request)) as answers:
            async for answer in answers:
                content += answer.data
        return f"data:{file.mime};base64,{base64.b64encode(content).decode()}"
