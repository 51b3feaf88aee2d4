"""Explains the request to a model: makes a step's request as a turn would, and does not send it."""

import asyncio
from collections.abc import Iterable

from msgspec import Struct

from turnwire.core.answer.model_call import prepare_request
from turnwire.core.context.compaction import plan_before_step
from turnwire.core.context.draft import draft_request
from turnwire.core.environment import Environment
from turnwire.core.intake.contents import Contents, LoadedFile, load_contents
from turnwire.core.intake.readable_files import readable_files
from turnwire.core.intake.requests import NewPart, NewTurn
from turnwire.core.tools.toolbox import open_toolbox
from turnwire.core.use_cases.choices import check_answer, choose_turn, settings_in
from turnwire.domain.conversation.messages import Message, MessageStatus, MessageType, ModelRef, SentContext
from turnwire.domain.conversation.turns import Turn
from turnwire.domain.principal import Principal
from turnwire.domain.repairs import Repair


class ExplainRequest(Struct, frozen=True, kw_only=True):
    """A request for an explanation."""

    session_id: str
    parts: tuple[NewPart, ...]
    """Parts of a user message to append to the conversation without storing it; empty for none."""
    turn: NewTurn


class ContextExplanation(Struct, frozen=True, kw_only=True):
    """A request, and how it was made."""

    model: ModelRef
    api: str
    """The provider's API: the kind of its configuration."""
    request_json: str
    """The body of the HTTP request."""
    estimated_tokens: int
    context_window_tokens: int | None
    """None when unknown."""
    would_compact: bool
    """True when a turn would compact the conversation first; the request here is not compacted."""
    repairs: tuple[Repair, ...]
    """The repairs of the core, then those that the API's rules required; each in message order."""
    sent_context: SentContext


class ContextExplainer:
    """Explains requests without sending or storing anything."""

    def __init__(self, environment: Environment) -> None:
        """Takes the ports and settings. `_one_at_a_time` lets one request be made at a time, because it may
        be large.
        """
        self._environment = environment
        self._one_at_a_time = asyncio.Lock()

    async def explain(self, principal: Principal, request: ExplainRequest) -> ContextExplanation:
        """Returns the request that a model would get if a turn of the session began now. Safe to cancel.

        Requests are made one at a time, because one may be as large as the conversation.

        Raises:
            SessionNotFound: there is no such session.
            InvalidRequest: a part, a tool's schema or the agent is invalid.
            UploadNotFound: a part names an upload that does not exist.
            UnknownModel: the model is not configured.
            ProviderCredentialsRejected: the model's provider has no key.
            StorageError: the conversation could not be read.
        """
        environment = self._environment
        session = await environment.session(principal, request.session_id)
        with settings_in("settings"):
            turn = choose_turn(
                environment,
                principal,
                session,
                request.turn,
                message_id=environment.new_id("msg"),
                now=environment.clock(),
            )
            await check_answer(environment.settings, request.turn)
        readable, limits = readable_files(environment, session), environment.settings.limits
        contents = await load_contents(request.parts, readable, limits, request.turn.size_bytes)
        async with self._one_at_a_time:
            return await self._explanation(principal, turn, contents)

    async def _explanation(self, principal: Principal, turn: Turn, contents: Contents) -> ContextExplanation:
        environment, model = self._environment, turn.model
        toolbox = await open_toolbox(turn.tools, environment.settings, turn.agent, environment.tools)
        further = (self._message(turn, contents),) if contents.contents else ()
        draft = await draft_request(environment, turn, toolbox, further)
        plan = await plan_before_step(environment, draft)
        unsaved = {file.reference.sha256: await self._content(principal, file) for file in contents.files}
        provider = await environment.providers.get(model.provider_id)
        prepared = await prepare_request(
            environment, turn, provider, request=draft.request, model=model, unsaved=unsaved
        )
        return ContextExplanation(
            model=model,
            api=provider.api,
            request_json=await asyncio.to_thread(_joined, prepared.pieces),
            estimated_tokens=draft.tokens,
            context_window_tokens=environment.providers.context_window_tokens(model),
            would_compact=plan is not None,
            repairs=(*draft.repairs, *prepared.repairs),
            sent_context=draft.sent,
        )

    async def _content(self, principal: Principal, file: LoadedFile) -> bytes:
        """Returns the bytes of a file that is not stored yet. An upload stays."""
        if not file.upload_id:
            return file.content
        uploads = self._environment.store.uploads
        return b"".join([piece async for piece in uploads.pieces(principal.tenant, file.upload_id)])

    def _message(self, turn: Turn, contents: Contents) -> Message:
        return Message(
            message_id=turn.user_message_id,
            session_id=turn.session_id,
            type=MessageType.USER,
            status=MessageStatus.COMPLETE,
            created_at=turn.created_at,
            updated_at=turn.created_at,
            parts=contents.parts(self._environment.new_id),
            turn_id=turn.turn_id,
        )


def _joined(pieces: Iterable[bytes]) -> str:
    return b"".join(pieces).decode()
