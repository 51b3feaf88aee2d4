"""Writes the messages of an Anthropic Messages request."""

from collections.abc import Sequence

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
from turnwire.providers.anthropic.hosted import Half, HostedCalls, LeftOut, Shape, first_that_goes_on, half_of, shape_of
from turnwire.providers.anthropic.wire import Block, WireMessages
from turnwire.providers.request.content import base64_text
from turnwire.providers.request.history import HistoryWriter
from turnwire.providers.request.reader import (
    GO_ON,
    NO_OUTPUT,
    RequestReader,
    ResultAsText,
    SentCall,
    ShownFile,
    files_heading,
)

_MAX_TITLE_CHARS = 500

THINKING = ("thinking", "redacted_thinking")


class _Said(Struct, frozen=True):
    """The blocks of one neutral message, before neighbours are merged."""

    message: Message
    blocks: list[tuple[Block, Part | None]]
    is_answer: bool = False

    @property
    def is_paused(self) -> bool:
        """Whether the provider continues this answer when it is sent back."""
        return self.is_answer and self.message.finish_reason is FinishReason.PAUSED

    @property
    def shape(self) -> Shape:
        """Its shape, for the rules of hosted tools."""
        has_only_results = all(block["type"] == "tool_result" for block, _ in self.blocks)
        return shape_of(self.is_answer, self.is_paused, has_only_results)


class AnthropicMessages(HistoryWriter):
    """Writes the messages of one conversation's requests. `AnthropicWriter` adds the rest of the body."""

    minds_prefix = True

    def __init__(self, reader: RequestReader) -> None:
        """Takes a new reader."""
        pieces: list[bytes] = []
        self._wire = WireMessages(pieces)
        self._said: list[Shape] = []
        """The shapes of the messages, before neighbours are merged."""
        self._paused: list[bool] = []
        """The last entry: whether the last answer that was sent was paused."""
        self._hosted = HostedCalls()
        super().__init__(reader, pieces, *self._wire.grown, self._said, self._paused, self._hosted.left_out)
        self._repairs = reader.repairs

    def _write_from(self, first: int, messages: Sequence[Message]) -> int:
        """Writes the messages. Later messages change only answers with hosted calls that may still be answered."""
        first = self._look_ahead(first, messages)
        self._write(first, messages, open_from=None)
        open_from = first_that_goes_on(self._said)
        first_open = self._hosted.first_open(open_from)
        if first_open is None:
            return len(messages)
        self._go_back(first_open)
        self._write(first_open, messages, open_from)
        return first_open

    def _boundary(self, kept: int, messages: Sequence[Message]) -> int:
        del messages
        return self._hosted.boundary(kept)

    def _look_ahead(self, first: int, messages: Sequence[Message]) -> int:
        """Finds the halves of hosted calls in new messages. Returns the message to write from, because some may
        complete old ones.
        """
        while True:
            self._hosted.go_back(first)
            again = first
            for message in messages[first:]:
                regained = self._hosted.look(self._halves(message))
                again = again if regained is None else min(again, regained)
            if again == first:
                return first
            self._go_back(again)
            first = again

    def _halves(self, message: Message) -> list[Half]:
        blocks = [
            self._judge(message, part, part.content)[0]
            for part in message.parts
            if message.type is MessageType.ASSISTANT
            and isinstance(part.content, Reasoning | ProviderContent)
            and _may_be_hosted(part.provider_state)
        ]
        return [half for block in blocks if block is not None and (half := half_of(block)) is not None]

    def _write(self, first: int, messages: Sequence[Message], open_from: int | None) -> None:
        """Writes messages. With None, no hosted call without a result is sent."""
        for at in range(first, len(messages)):
            message = messages[at]
            self._begin(message)
            said = [] if self.reader.joins_system(message) else self._read(message)
            for one in said:
                place = LeftOut(at, len(self._said))
                self._said.append(one.shape)
                if one.is_answer:
                    blocks = self._sendable(one, place, len(messages) * 2 if open_from is None else open_from)
                    self._add_answer(one, blocks, is_followed=len(said) > 1)
                else:
                    self._wire.add("user", [block for block, _ in one.blocks])
            self._end()

    def _read(self, message: Message) -> list[_Said]:
        if message.type is MessageType.ASSISTANT:
            return self._read_answer(message)
        if message.type is MessageType.SYSTEM:
            text = self.reader.system_text(message)
            if not text:
                return []
            self._repairs.replaced(RepairReason.SYSTEM_AS_USER_TEXT, message)
            return [_Said(message, [(_text(f"<system>\n{text}\n</system>"), None)])]
        blocks = [_user_block(item) for item in self.reader.user_content(message)]
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
                    block = _text(self.reader.models_file(message, part, file))
                case Reasoning() | ProviderContent() as content:
                    block = self._own_block(message, part, content)
                case ToolUse() as call:
                    match self.reader.call(message, part, call):
                        case SentCall() as sent:
                            block = {"type": "tool_use", "id": sent.call_id, "name": sent.name, "input": sent.arguments}
                            results.append(_result(sent))
                            behind += _files_apart(sent)
                        case ResultAsText() as result:
                            behind += [_text(result.text), *map(_user_block, result.files)]
                case _:
                    self._repairs.dropped(RepairReason.MISPLACED, message, part)
            if block is not None:
                answer.append((block, part))
        said = [_Said(message, answer, is_answer=True)]
        if results or behind:
            said.append(_Said(message, [(block, None) for block in results + behind]))
        return said

    def _text(self, message: Message, part: Part, content: Text | Refusal) -> Block | None:
        text = self.reader.text(message, part, content)
        if not text:
            return None
        state = self.reader.own_state(message, part)
        citations = state.get("citations")
        if isinstance(citations, list) and citations:
            return {**_text(text), "citations": citations}
        if state:
            self._repairs.dropped(RepairReason.UNUSABLE_STATE, message, part)
        return _text(text)

    def _own_block(self, message: Message, part: Part, content: Reasoning | ProviderContent) -> Block | None:
        """Returns the provider's own block unchanged; None when it cannot be sent back."""
        block, reason = self._judge(message, part, content)
        if reason is not None:
            self._repairs.dropped(reason, message, part)
        return block

    def _judge(
        self, message: Message, part: Part, content: Reasoning | ProviderContent
    ) -> tuple[Block | None, RepairReason | None]:
        """Returns the provider's own block, or the reason why it cannot be sent back."""
        state, reason = self.reader.judge_state(message, part)
        if not state:
            return None, reason
        block: Block | None = None
        if isinstance(state.get("block"), dict) and isinstance(state["block"].get("type"), str):
            block = state["block"]
        elif isinstance(content, Reasoning) and isinstance(state.get("signature"), str) and state["signature"]:
            block = {"type": "thinking", "thinking": content.text, "signature": state["signature"]}
        if block is None:
            return None, RepairReason.UNUSABLE_STATE
        if message.message_id in self.reader.asked.prefix_changed and _is_signed(block):
            # Newer models check that system prompt, tools and messages before a signed block are the same as when it
            # was made.
            return None, RepairReason.PREFIX_CHANGED
        return block, None

    def _sendable(self, answer: _Said, place: LeftOut, open_from: int) -> list[Block]:
        """Returns the blocks that can be sent at their positions."""
        message = answer.message
        blocks = []
        for block, part in answer.blocks:
            half = half_of(block)
            if half is None or self._hosted.may_be_sent(half, place, open_from):
                blocks.append((block, part))
            else:
                self._repairs.dropped(RepairReason.HALF_OF_HOSTED_CALL, message, part)
        # "The final block in an assistant message cannot be `thinking`". This applies when the content after the
        # thinking is not sent, and also inside a merged message, where the continuing request once ended.
        while blocks and blocks[-1][0]["type"] in THINKING:
            self._repairs.dropped(RepairReason.REASONING_LEADS_NOWHERE, message, blocks.pop()[1])
        if answer.is_paused and blocks:
            last, part = blocks[-1]
            if last["type"] == "text" and last["text"] != last["text"].rstrip():
                # "final assistant content cannot end with trailing whitespace"
                self._repairs.replaced(RepairReason.TRAILING_SPACE, message, part)
                blocks[-1] = ({**last, "text": last["text"].rstrip()}, part)
        return [block for block, _ in blocks]

    def _add_answer(self, answer: _Said, blocks: list[Block], *, is_followed: bool) -> None:
        """Adds an answer; `is_followed` when a user message with content of it follows."""
        if (blocks or is_followed) and self._is_the_users_turn():
            # The request for this answer had the same added user message. Leaving it out now would change the messages
            # before the answer.
            self._go_on(answer.message)
        if blocks:
            self._wire.add("assistant", blocks)
            self._paused.append(answer.is_paused)
        else:
            self._paused.append(self._paused[-1:] == [True] and answer.is_paused)

    def _is_the_users_turn(self) -> bool:
        """Returns whether a user message must follow: the model has finished its answer, or there is no message yet."""
        is_paused = self._paused[-1:] == [True]
        return not self._wire.roles or (self._wire.roles[-1] == "assistant" and not is_paused)

    def _go_on(self, before: Message | None) -> None:
        self._repairs.added(RepairReason.CONVERSATION_CONTINUES, before, text=GO_ON)
        self._wire.add("user", [_text(GO_ON)])


def _may_be_hosted(provider_state: str | None) -> bool:
    """Returns whether a state may have a half of a hosted call; cheaper than decoding it."""
    return provider_state is not None and ("tool_" in provider_state or "\\u" in provider_state)


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
