"""The message history of pydantic-ai, kept in a conversation of Turnwire.

    async with Client.connect("127.0.0.1:50051") as client:
        result = await agent.run("What is in the box?", message_history=await load(client, session_id))
        await store(client, session_id, result.new_messages())

People watch the messages come, and what the server's own turns add is part of the history too. Instructions are the
agent's, and not kept; signatures of thinking are left out, since a model takes only those of its own provider.
"""

from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    RetryPromptPart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from opencode.message.content_pb2 import (
    FINISH_REASON_CONTENT_FILTER,
    FINISH_REASON_LENGTH,
    FINISH_REASON_STOP,
    FINISH_REASON_TOOL_USE,
    FINISH_REASON_UNSPECIFIED,
    MESSAGE_TYPE_ASSISTANT,
    MESSAGE_TYPE_SYSTEM,
    MESSAGE_TYPE_TOOL_RESULT,
    MESSAGE_TYPE_USER,
    ModelRun,
    ReasoningContent,
    SessionMessage,
    TokenUsage,
    ToolResultContent,
)
from opencode.message.message_pb2 import AppendedToolCall, FilePart, MessagePart
from opencode.message.message_pb2 import TextPart as StoredText
from turnwire_client import Client

_ENDINGS = {
    "stop": FINISH_REASON_STOP,
    "length": FINISH_REASON_LENGTH,
    "content_filter": FINISH_REASON_CONTENT_FILTER,
    "tool_call": FINISH_REASON_TOOL_USE,
}


async def store(client: Client, session_id: str, messages: list[ModelMessage]) -> None:
    """Stores messages behind those that are there: an answer as one message, a request as one for each of its parts."""
    for message in messages:
        if isinstance(message, ModelResponse):
            await _store_answer(client, session_id, message)
        else:
            for part in message.parts:
                await _store_part(client, session_id, part)


async def load(client: Client, session_id: str) -> list[ModelMessage]:
    """Returns the conversation, with what the server's own turns added to it."""
    messages = await client.messages(session_id)
    apart = {part.tool_result.tool_call_id for message in messages for part in message.parts}
    history: list[ModelMessage] = []
    asked: list[ModelRequestPart] = []
    for message in messages:
        if message.type != MESSAGE_TYPE_ASSISTANT:
            asked += _request_parts(message, messages)
            continue
        if asked:
            history.append(ModelRequest(parts=asked))
            asked = []
        parts, results = _response_parts(message, apart)
        if parts:
            run = message.model_run
            name, provider = run.model_served or run.model_requested, run.provider_id
            history.append(ModelResponse(parts=parts, model_name=name or None, provider_name=provider or None))
        asked += results
    return [*history, ModelRequest(parts=asked)] if asked else history


async def _store_answer(client: Client, session_id: str, answer: ModelResponse) -> None:
    parts = [stored for part in answer.parts if (stored := _stored(part)) is not None]
    if not parts:
        return
    usage = answer.usage
    cached, written = usage.cache_read_tokens, usage.cache_write_tokens
    await client.append(
        session_id,
        parts,
        type=MESSAGE_TYPE_ASSISTANT,
        model_run=ModelRun(
            provider_id=answer.provider_name or "",
            model_requested=answer.model_name or "",
            response_id=answer.provider_response_id or "",
        ),
        finish_reason=_ENDINGS.get(answer.finish_reason or "", FINISH_REASON_UNSPECIFIED),
        usage=TokenUsage(
            input_tokens=max(
                usage.input_tokens - cached - written, 0
            ),  # pydantic-ai counts these twice, the server once
            cache_read_tokens=cached,
            cache_write_tokens=written,
            output_tokens=usage.output_tokens,
        ),
    )


def _stored(part: ModelResponsePart) -> MessagePart | None:
    match part:
        case TextPart(content=text) if text:
            return MessagePart(text=StoredText(text=text))
        case ThinkingPart(content=text) if text:
            return MessagePart(reasoning=ReasoningContent(text=text))
        case ToolCallPart():
            call = AppendedToolCall(name=part.tool_name, call_id=part.tool_call_id, input_json=part.args_as_json_str())
            return MessagePart(tool_call=call)
    return None


async def _store_part(client: Client, session_id: str, part: ModelRequestPart) -> None:
    match part:
        case SystemPromptPart():
            await client.append(session_id, part.content, type=MESSAGE_TYPE_SYSTEM)
        case UserPromptPart():
            said = [part.content] if isinstance(part.content, str) else part.content
            await client.append(session_id, [_user_part(one) for one in said], type=MESSAGE_TYPE_USER)
        case ToolReturnPart():
            await _store_result(client, session_id, part.tool_call_id, part.model_response_str(), is_error=False)
        case RetryPromptPart() if part.tool_name is not None:
            await _store_result(client, session_id, part.tool_call_id, part.model_response(), is_error=True)
        case RetryPromptPart():
            await client.append(session_id, part.model_response(), type=MESSAGE_TYPE_USER)


def _user_part(said: object) -> MessagePart:
    match said:
        case str():
            return MessagePart(text=StoredText(text=said))
        case BinaryContent():
            return MessagePart(file=FilePart(data=said.data, mime=said.media_type))
    raise ValueError(f"a {type(said).__name__} has no place in a conversation of Turnwire")


async def _store_result(client: Client, session_id: str, call_id: str, output: str, *, is_error: bool) -> None:
    result = ToolResultContent(call_id=call_id, output=output, is_error=is_error)
    await client.append(session_id, MessagePart(tool_result=result), type=MESSAGE_TYPE_TOOL_RESULT)


def _request_parts(message: SessionMessage, messages: list[SessionMessage]) -> list[ModelRequestPart]:
    """Returns what a message says to a model. Notes of the host say nothing, and files of users are not read again."""
    texts = [part.text.text for part in message.parts if part.HasField("text")]
    if message.type == MESSAGE_TYPE_SYSTEM:
        return [SystemPromptPart(text) for text in texts]
    if message.type == MESSAGE_TYPE_USER:
        return [UserPromptPart(text) for text in texts]
    names = {part.tool_use.id: part.tool_use.name for one in messages for part in one.parts}
    return [
        _result(names.get(part.tool_result.tool_call_id, ""), part.tool_result.call_id, part.tool_result.output)
        for part in message.parts
        if part.tool_result.tool_call_id in names
    ]


def _response_parts(message: SessionMessage, apart: set[str]) -> tuple[list[ModelResponsePart], list[ModelRequestPart]]:
    """Returns what an answer says, and the results of its calls that are in no message of their own."""
    parts: list[ModelResponsePart] = []
    results: list[ModelRequestPart] = []
    for part in message.parts:
        match part.WhichOneof("content"):
            case "text":
                parts.append(TextPart(part.text.text))
            case "refusal":
                parts.append(TextPart(part.refusal.text))
            case "reasoning":
                parts.append(ThinkingPart(part.reasoning.text))
            case "tool_use":
                call = part.tool_use
                call_id = call.call_id or call.id
                parts.append(ToolCallPart(call.name, call.input_json or "{}", tool_call_id=call_id))
                if call.id not in apart and (call.HasField("output") or call.HasField("error")):
                    said = call.output if call.HasField("output") else call.error
                    results.append(_result(call.name, call_id, said))
    return parts, results


def _result(name: str, call_id: str, output: str) -> ToolReturnPart:
    return ToolReturnPart(tool_name=name, content=output, tool_call_id=call_id)
