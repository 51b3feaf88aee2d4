"""Writes the messages of an Anthropic Messages request."""

from typing import Any

from msgspec import Struct

from turnwire.domain.conversation.messages import (
    File,
    FinishReason,
    Message,
    MessageType,
    Part,
    ProviderContent,
    Reasoning,
    Refusal,
    Text,
    ToolUse,
)
from turnwire.domain.repairs import RepairReason
from turnwire.providers.request.content import base64_text
from turnwire.providers.request.reader import (
    GO_ON,
    NO_OUTPUT,
    RequestReader,
    SentCall,
    ShownFile,
    ToldResult,
    files_heading,
)

Block = dict[str, Any]

_MAX_TITLE_CHARS = 500

THINKING = ("thinking", "redacted_thinking")


class _Said(Struct, frozen=True):
    """The blocks of one neutral message, before neighbours are merged."""

    message: Message
    blocks: list[tuple[Block, Part | None]]
    is_answer: bool = False

    @property
    def is_paused(self) -> bool:
        """True when the provider continues this answer when it gets it back."""
        return self.is_answer and self.message.finish_reason is FinishReason.PAUSED


class AnthropicMessages:
    """Writes the messages of one request and merges neighbours of the same role."""

    def __init__(self, reader: RequestReader) -> None:
        """Takes the reader of the request."""
        self._reader = reader
        self._repairs = reader.repairs
        self._wire: list[dict[str, Any]] = []
        self._paused = False
        """The last answer that was sent was paused."""

    def wire_messages(self, messages: tuple[Message, ...]) -> list[dict[str, Any]]:
        """Returns the messages; the last one is the user's, or a paused answer."""
        said = [one for message in messages for one in self._read(message)]
        hosted = _HostedCalls(said)
        for at, one in enumerate(said):
            if one.is_answer:
                is_told = said[at + 1 : at + 2] and said[at + 1].message is one.message
                self._add_answer(one, self._sendable(one, hosted, at), bool(is_told))
            else:
                self._add("user", [block for block, _ in one.blocks])
        if self._is_the_users_turn():
            self._go_on(None)
        return self._wire

    def _read(self, message: Message) -> list[_Said]:
        if message.type is MessageType.ASSISTANT:
            return self._read_answer(message)
        if message.type is MessageType.SYSTEM:
            text = self._reader.system_text(message)
            if not text:
                return []
            self._repairs.replaced(RepairReason.SYSTEM_AS_USER_TEXT, message)
            return [_Said(message, [(_text(f"<system>\n{text}\n</system>"), None)])]
        blocks = [_user_block(item) for item in self._reader.user_content(message)]
        return [_Said(message, [(block, None) for block in blocks])] if blocks else []

    def _read_answer(self, message: Message) -> list[_Said]:
        """Returns the answer, followed by the user's message with the results of its calls if there are any."""
        answer: list[tuple[Block, Part | None]] = []
        results: list[Block] = []
        behind: list[Block] = []
        """The user's content after the results, which must come first."""
        for part in message.parts:
            block: Block | None = None
            match part.content:
                case Text() | Refusal() as content:
                    block = self._text(message, part, content)
                case File() as file:
                    block = _text(self._reader.models_file(message, part, file))
                case Reasoning() | ProviderContent() as content:
                    block = self._own_block(message, part, content)
                case ToolUse() as call:
                    match self._reader.call(message, part, call):
                        case SentCall() as sent:
                            block = {"type": "tool_use", "id": sent.call_id, "name": sent.name, "input": sent.arguments}
                            results.append(_result(sent))
                            behind += _files_apart(sent)
                        case ToldResult() as told:
                            behind += [_text(told.text), *map(_user_block, told.files)]
                case _:
                    self._repairs.dropped(RepairReason.MISPLACED, message, part)
            if block is not None:
                answer.append((block, part))
        said = [_Said(message, answer, is_answer=True)]
        if results or behind:
            said.append(_Said(message, [(block, None) for block in results + behind]))
        return said

    def _text(self, message: Message, part: Part, content: Text | Refusal) -> Block | None:
        text = self._reader.text(message, part, content)
        if not text:
            return None
        state = self._reader.own_state(message, part)
        citations = state.get("citations")
        if isinstance(citations, list) and citations:
            return {**_text(text), "citations": citations}
        if state:
            self._repairs.dropped(RepairReason.UNUSABLE_STATE, message, part)
        return _text(text)

    def _own_block(self, message: Message, part: Part, content: Reasoning | ProviderContent) -> Block | None:
        """Returns the provider's own block unchanged; None when it cannot be sent back."""
        state = self._reader.own_state(message, part)
        if not state:
            return None
        block: Block | None = None
        if isinstance(state.get("block"), dict) and isinstance(state["block"].get("type"), str):
            block = state["block"]
        elif isinstance(content, Reasoning) and isinstance(state.get("signature"), str) and state["signature"]:
            block = {"type": "thinking", "thinking": content.text, "signature": state["signature"]}
        if block is None:
            self._repairs.dropped(RepairReason.UNUSABLE_STATE, message, part)
        elif message.message_id in self._reader.request.prefix_changed and _is_signed(block):
            # Newer models check that system prompt, tools and messages before a signed block are those it was made
            # after.
            self._repairs.dropped(RepairReason.PREFIX_CHANGED, message, part)
            return None
        return block

    def _sendable(self, answer: _Said, hosted: "_HostedCalls", at: int) -> list[Block]:
        """Returns the blocks that can be sent at their place."""
        message = answer.message
        blocks = []
        for block, part in answer.blocks:
            if hosted.may_be_sent(block, at):
                blocks.append((block, part))
            else:
                self._repairs.dropped(RepairReason.HALF_OF_HOSTED_CALL, message, part)
        # "The final block in an assistant message cannot be `thinking`". This applies when what the thinking led to is
        # not sent, and also inside a merged message, where the continuing request once ended.
        while blocks and blocks[-1][0]["type"] in THINKING:
            self._repairs.dropped(RepairReason.REASONING_LEADS_NOWHERE, message, blocks.pop()[1])
        if answer.is_paused and blocks:
            last, part = blocks[-1]
            if last["type"] == "text" and last["text"] != last["text"].rstrip():
                # "final assistant content cannot end with trailing whitespace"
                self._repairs.replaced(RepairReason.TRAILING_SPACE, message, part)
                blocks[-1] = ({**last, "text": last["text"].rstrip()}, part)
        return [block for block, _ in blocks]

    def _add_answer(self, answer: _Said, blocks: list[Block], is_told: bool) -> None:
        """Adds an answer; `is_told` when a user message with something from it follows."""
        if (blocks or is_told) and self._is_the_users_turn():
            # The request for this answer had the same added user message. Leaving it out now would change what comes
            # before the answer.
            self._go_on(answer.message)
        if blocks:
            self._add("assistant", blocks)
            self._paused = answer.is_paused
        else:
            self._paused = self._paused and answer.is_paused

    def _is_the_users_turn(self) -> bool:
        """Returns whether a user message must follow: the model has finished its answer, or there is no message yet."""
        return not self._wire or (self._wire[-1]["role"] == "assistant" and not self._paused)

    def _go_on(self, before: Message | None) -> None:
        self._repairs.added(RepairReason.CONVERSATION_CONTINUES, before, text=GO_ON)
        self._add("user", [_text(GO_ON)])

    def _add(self, role: str, blocks: list[Block]) -> None:
        if self._wire and self._wire[-1]["role"] == role:
            self._wire[-1]["content"].extend(blocks)
        else:
            self._wire.append({"role": role, "content": blocks})


class _HostedCalls:
    """The halves (call, result) of provider-run calls in a request: one is refused without the other."""

    def __init__(self, said: list[_Said]) -> None:
        self._answered = set[str]()
        called = set[str]()
        for one in said:
            for block, _ in one.blocks:
                call_id = _hosted_id(block)
                if call_id is not None and _is_hosted_call(block):
                    called.add(call_id)
                elif call_id in called:
                    self._answered.add(call_id)
        self._open_from = _first_that_goes_on(said)

    def may_be_sent(self, block: Block, at: int) -> bool:
        """Returns whether a block of the answer at this position has its other half or may still get it."""
        call_id = _hosted_id(block)
        if call_id is None or call_id in self._answered:
            return True
        return _is_hosted_call(block) and at >= self._open_from


def _first_that_goes_on(said: list[_Said]) -> int:
    """Returns the position of the first answer whose hosted tools may still answer.

    They may after a pause and after results of the client's tools, when nothing else follows the answer.
    """
    at = len(said)
    if at and not said[-1].is_answer and all(block["type"] == "tool_result" for block, _ in said[-1].blocks):
        at -= 2  # results directly follow the answer that has their calls
    elif at and said[-1].is_paused:
        at -= 1
    else:
        return at
    while at and said[at - 1].is_paused:
        at -= 1
    return at


def _is_hosted_call(block: Block) -> bool:
    return bool(block["type"].endswith("tool_use")) and block["type"] != "tool_use"


def _hosted_id(block: Block) -> str | None:
    """Returns the call id of a block that is a hosted tool's call or result; None for other blocks."""
    if _is_hosted_call(block):
        return str(block.get("id"))
    kind = block["type"]
    return str(block.get("tool_use_id")) if kind.endswith("tool_result") and kind != "tool_result" else None


def _is_signed(block: Block) -> bool:
    return block["type"] in THINKING or "signature" in block


def _text(text: str) -> Block:
    return {"type": "text", "text": text}


def _user_block(item: str | ShownFile) -> Block:
    if isinstance(item, str):
        return _text(item)
    if item.kind == "text":
        return _text(item.text)
    source = {"type": "base64", "media_type": item.mime, "data": base64_text(item.data)}
    if item.kind == "image":
        return {"type": "image", "source": source}
    title = item.name[:_MAX_TITLE_CHARS].strip()
    return {"type": "document", "source": source, **({"title": title} if title else {})}


def _result(call: SentCall) -> Block:
    result: Block = {"type": "tool_result", "tool_use_id": call.call_id, "content": call.result or NO_OUTPUT}
    if call.files:
        # "all content must be type `text` if `is_error` is true"
        files = [file for file in call.files if file.kind == "text" or not call.is_error]
        texts = [call.result] if call.result or not files else []
        result["content"] = [_text(text or NO_OUTPUT) for text in texts] + [_user_block(file) for file in files]
    if call.is_error:
        result["is_error"] = True
    return result


def _files_apart(call: SentCall) -> list[Block]:
    """Returns the images and PDFs that cannot be part of a failed call's result."""
    media = call.media() if call.is_error else ()
    return [_text(files_heading(call.tool)), *map(_user_block, media)] if media else []
