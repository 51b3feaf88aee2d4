"""A provider without key and network: the model's name and the user's text script the answers.

For trying Turnwire, for building a frontend before any key exists, and for tests. The same request gets the same
items. A token is a word (a run without white space) of text, reasoning, refusal or tool arguments. The prompt's tokens
are counted the same way; files count as zero. Of the generation options `max_output_tokens`, `tool_choice` and
`response_format` have an effect.

Models. "The text" is the last user message without its directives:

    echo        answers with the text, and names the files that came with it (the default)
    lorem       200 words of filler at 50 words a second
    reasoning   readable reasoning, then the text
    tools       calls each declared tool once with arguments that fit its schema, then answers with the results
    error       fails before any content (unavailable)
    fail        answers with the text, then reports an error inside its stream
    cut         loses its stream half way through the text
    refuse      refuses
    length      answers with half of the text and says that the output limit was reached

Directives work with every model. Each is a line that starts with a slash and a name from the list below; any other line
is plain text. They are performed from top to bottom, with the model's own answer at the first plain line (`echo`: each
plain line at its own place). A message without plain lines gets what its directives produce (reasoning, words, tool
calls, a refusal), or the model's own answer when they produce nothing. Text is one
part, each piece on a new line, unless reasoning, a tool call or a refusal comes between.

    /reason TEXT            reasons aloud
    /words N                N words of filler
    /tool NAME ARGUMENTS    calls a tool, declared or not; ARGUMENTS go out as written, valid JSON or not. Without
                            them: arguments that fit the declared schema, else {}
    /refuse TEXT            a refusal; finishes as refusal
    /finish REASON          the finish reason: stop length tool_use refusal content_filter context_full paused
    /rate N                 from here on N words a second; 0 (the default of all models but lorem): no pauses
    /sleep SECONDS          a pause
    /error CODE [N]         fails after N more words (default 0: here): rate_limited (retry after 0.1 s) unavailable
                            timeout credentials refused context_full failed
    /cut [N]                loses the stream after N more words, at the end of the answer at the latest
    /flaky CODE N           fails the first N calls for this message with CODE, then succeeds
    /step                   what follows belongs to the turn's next model call

When a turn continues with another call (after tools, or after `/finish paused`) and its text has no `/step` for it, the
answer lists the tools' results, or is "continued" when there are none. A directive with a bad argument is refused as a
bad request; so is a message of more than 5,000 lines.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Generator, Iterator

from turnwire.domain.conversation.messages import FinishReason
from turnwire.domain.errors import ProviderRefusedRequest
from turnwire.domain.money import Usage
from turnwire.ports.provider import (
    PartEnded,
    PartKey,
    PreparedRequest,
    ProviderOrigin,
    ProviderRequest,
    ReasoningDelta,
    RefusalDelta,
    ResponseStarted,
    StepFinished,
    StreamItem,
    TextDelta,
    ToolCallDelta,
    UsageReported,
)
from turnwire.providers.catalog.offline_models import MODELS
from turnwire.providers.offline.request import OfflineRequest, OfflineWriter
from turnwire.providers.offline.script import (
    Action,
    CallTool,
    ContentAction,
    FinishWith,
    Flaky,
    Rate,
    Reason,
    Refuse,
    Say,
    Sleep,
    Stop,
    error_of,
    filler,
    position,
    read_script,
)

_MODEL_IDS = frozenset(model.model_id for model in MODELS)

MAX_FLAKY = 10_000
"""Maximum number of remembered messages with `/flaky`; the oldest ones start again."""

_WORDS_AT_ONCE = 16
"""Words of filler after which other tasks run."""

_WORD = re.compile(r"\s*\S+(?:\s+\Z)?")


class OfflineProvider:
    """The offline provider; see the module's docstring. Implements `turnwire.ports.provider.Provider`."""

    def __init__(self, provider_id: str = "offline") -> None:
        """Takes the id of the provider in the configuration."""
        self.provider_id = provider_id
        self.api = "offline"
        self.origin = ProviderOrigin(provider_id)
        self._flaky_calls: dict[tuple[str, int], int] = {}
        """Failures so far by message and step; an entry is removed when its `/flaky` lets the call succeed."""

    def writer(self) -> OfflineWriter:
        """See `Provider.writer`. A body shows the input of the script; nothing is sent anywhere."""
        return OfflineWriter()

    async def stream(self, prepared: PreparedRequest) -> AsyncGenerator[StreamItem]:
        """Performs the script of the request; see the module's docstring and `Provider.stream`."""
        request = prepared.request
        if request.model_id not in _MODEL_IDS:
            raise ProviderRefusedRequest(
                f"the offline provider has no model {request.model_id!r}", {"modelId": request.model_id}
            )
        actions = read_script(request)
        self._fail_while_flaky(actions, position(request))
        clock = asyncio.get_running_loop()
        due = clock.time()
        words = prepared.prompt_words if isinstance(prepared, OfflineRequest) else 0
        for item in _play(actions, request, words):
            if isinstance(item, float):
                due += item
                await asyncio.sleep(max(0.0, due - clock.time()))
            else:
                yield item

    async def aclose(self) -> None:
        """Does nothing; there is nothing to close."""

    def _fail_while_flaky(self, actions: list[Action], key: tuple[str, int]) -> None:
        for action in actions:
            if isinstance(action, Flaky):
                failures = self._flaky_calls.get(key, 0)
                if failures < action.calls:
                    if len(self._flaky_calls) >= MAX_FLAKY:
                        del self._flaky_calls[next(iter(self._flaky_calls))]
                    self._flaky_calls[key] = failures + 1
                    raise error_of(action.code)
                self._flaky_calls.pop(key, None)


def _play(actions: list[Action], request: ProviderRequest, prompt_words: int) -> Iterator[StreamItem | float]:
    """Yields the items of the answer; a number is a pause in seconds before the next item."""
    performer = _Performer(request, prompt_words)
    opening = (
        ResponseStarted(request.model_id, f"offline-{len(request.messages)}"),
        UsageReported(performer.prompt_usage()),
    )
    started = False
    for item in performer.perform(actions):
        if not started and not isinstance(item, float):
            started = True
            yield from opening
        yield item
    if not started:
        yield from opening
    yield UsageReported(performer.usage())
    yield StepFinished(performer.finish, performer.finish.value)


class _Performer:
    """Turns actions into items and keeps the counts for limits, rate and usage."""

    def __init__(self, request: ProviderRequest, prompt_words: int) -> None:
        self.finish = FinishReason.STOP
        self._turn_of_talk = len(request.messages)
        """Makes call ids unique within a conversation and equal from run to run."""
        self._prompt_words = prompt_words
        self._max_words = request.options.max_output_tokens
        self._words = 0
        self._reasoning_words = 0
        self._rate = 50.0 if request.model_id == "lorem" else 0.0
        self._stop: Stop | None = None
        """The error to raise. Its `words` is the word count at which it is raised."""

    def prompt_usage(self) -> Usage:
        """Usage before the first word and after an abort, when the generated tokens are unknown."""
        return Usage(input_tokens=self._prompt_words)

    def usage(self) -> Usage:
        return Usage(
            input_tokens=self._prompt_words,
            output_tokens=self._words - self._reasoning_words,
            reasoning_tokens=self._reasoning_words,
        )

    def perform(self, actions: list[Action]) -> Iterator[StreamItem | float]:
        key = 0
        for number, action in enumerate(actions):
            match action:
                case Rate(rate):
                    self._rate = rate
                case Sleep(seconds):
                    yield seconds
                case Stop(code, words):
                    self._stop = Stop(code, self._words + words)
                    self._raise_when_due()
                case FinishWith(reason):
                    self.finish = reason
                case Flaky():
                    pass
                case _:
                    if not isinstance(action, Say) or action.begins_part:
                        key = number
                    complete = yield from self._generate(key, action)
                    if not complete:
                        self.finish = FinishReason.LENGTH
                        return
                    if not isinstance(action, Say) or action.ends_part:
                        yield PartEnded(key)
        if self._stop:
            raise error_of(self._stop.code)

    def _generate(self, key: PartKey, action: ContentAction) -> Generator[StreamItem | float, None, bool]:
        """Yields the words of one action. Returns False when the output limit cut them."""
        if isinstance(action, CallTool):
            self.finish = FinishReason.TOOL_USE
            yield ToolCallDelta(key, name=action.name, call_id=f"call_{self._turn_of_talk}_{key}")
        elif isinstance(action, Refuse):
            self.finish = FinishReason.REFUSAL
        for word in _words_of(action):
            if self._words == self._max_words:
                return False
            self._raise_when_due()
            if self._rate:
                yield 1 / self._rate
            elif self._words % _WORDS_AT_ONCE == 0:
                yield 0.0
            self._words += 1
            self._reasoning_words += isinstance(action, Reason)
            yield _delta(key, action, word)
        return True

    def _raise_when_due(self) -> None:
        if self._stop and self._words >= self._stop.words:
            raise error_of(self._stop.code)


def _words_of(action: ContentAction) -> Iterator[str]:
    """Returns the words of an action, each with the white space before it."""
    if isinstance(action, Say) and action.filler_words:
        return filler(action.filler_words, action.text)
    text = action.arguments if isinstance(action, CallTool) else action.text
    return (word[0] for word in _WORD.finditer(text))


def _delta(key: PartKey, action: ContentAction, word: str) -> StreamItem:
    match action:
        case Say():
            return TextDelta(key, word)
        case Reason():
            return ReasoningDelta(key, word)
        case Refuse():
            return RefusalDelta(key, word)
        case CallTool():
            return ToolCallDelta(key, arguments=word)
