"""Model providers: what a step sends and what comes back.

A provider turns one `ProviderRequest` into a stream of items that do not differ between APIs. Items with the same `key`
belong to one part. The first item with a new key opens the part, so parts are ordered by the first appearance of their
keys. A stream ends with exactly one `StepFinished` or with a raised `ProviderError`. If the provider gave its finish
reason before the error, `StepFinished` comes first and the error after it.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Protocol

from msgspec import Struct

from turnwire.domain.conversation.messages import FinishReason, Message, ModelRef
from turnwire.domain.conversation.turns import GenerationOptions, ToolDefinition
from turnwire.domain.errors import ProviderError
from turnwire.domain.money import Usage
from turnwire.domain.repairs import Repair

PartKey = str | int
"""Names a part within one stream; chosen by the adapter."""


def _nothing() -> None:
    """Ignores the notice."""


class ProviderRequest(Struct, frozen=True, kw_only=True):
    """One model call, neutral between APIs."""

    model_id: str
    system: str
    """System prompt; "" for none."""
    messages: tuple[Message, ...]
    """In conversation order. Type USER, ASSISTANT, SYSTEM or TOOL_RESULT, never HOST; only parts to send.
    A tool call (`ToolUse`) carries its final result; the adapter writes both in its API's form."""
    tools: tuple[ToolDefinition, ...] = ()
    options: GenerationOptions = GenerationOptions()
    files: Mapping[str, bytes] = {}
    """Bytes of every `File` part in `messages` and of the files of tool results, by sha256."""
    capabilities: tuple[str, ...] | None = None
    """As in `ModelDescription`: images and documents go only to a model that can see them. None means unknown, and
    everything is sent."""
    prefix_changed: frozenset[str] = frozenset()
    """Ids of model messages that were generated after a different system prompt, other tools or other messages. A
    provider that checks this refuses their sealed reasoning."""


class PreparedRequest(Struct, frozen=True, kw_only=True):
    """One model call in the form of its API."""

    request: ProviderRequest
    pieces: tuple[bytes, ...]
    """The body of the HTTP request, exactly as it is sent: JSON in UTF-8, cut anywhere."""
    repairs: tuple[Repair, ...] = ()
    """Repairs that the API's rules required, in the order of the messages."""
    was_read: Callable[[], None] = _nothing
    """Called once the body may be dropped, because the provider has read it, or nearly all of it. Idempotent."""


class ResponseStarted(Struct, frozen=True):
    """The provider named itself. May come more than once; a later non-empty value replaces an earlier one."""

    model_served: str = ""
    response_id: str = ""


class TextDelta(Struct, frozen=True):
    """Text of the answer. May hold half of a surrogate pair at either end; the receiver joins them."""

    key: PartKey
    text: str


class ReasoningDelta(Struct, frozen=True):
    """Readable reasoning. An empty text opens the part without adding to it."""

    key: PartKey
    text: str


class RefusalDelta(Struct, frozen=True):
    """A piece of a refusal."""

    key: PartKey
    text: str


class ToolCallDelta(Struct, frozen=True):
    """A piece of a tool call. Name and call_id are given as soon as they are known and do not change."""

    key: PartKey
    name: str = ""
    call_id: str = ""
    arguments: str = ""
    """The next piece of the arguments' JSON text."""


class PartEnded(Struct, frozen=True):
    """A part is complete. A part without this item is complete when the stream finishes."""

    key: PartKey
    provider_state: str | None = None
    """Opaque JSON text to store with the part and send back byte-exact."""
    text: str | None = None
    """The complete text (or arguments) if the provider repeats it; it replaces the text of the deltas."""


class ProviderContentReceived(Struct, frozen=True):
    """A complete part that only its provider understands (sealed reasoning, traces of hosted tools)."""

    key: PartKey
    kind: str
    """The provider's own name for it."""
    state: str
    """The content as JSON text."""


class UsageReported(Struct, frozen=True):
    """Tokens so far; replaces what was reported before."""

    usage: Usage


class StepFinished(Struct, frozen=True):
    """The last item: the provider sent its end marker, or gave its reason before an error."""

    reason: FinishReason
    provider_reason: str
    """The provider's own word for the reason; "" if it gave none."""


StreamItem = (
    ResponseStarted
    | TextDelta
    | ReasoningDelta
    | RefusalDelta
    | ToolCallDelta
    | PartEnded
    | ProviderContentReceived
    | UsageReported
    | StepFinished
)


class Unwritten(Struct, frozen=True):
    """The part of a request that its writer has yet to write."""

    messages: tuple[Message, ...]
    """The last ones of the request."""
    files: frozenset[str]
    """Hashes of the files whose bytes it needs."""


class RequestWriter(Protocol):
    """Writes the requests of one conversation in an API's form, and remembers how it wrote their messages.

    Its result depends on the request alone: a fresh writer returns the same. A request that begins with the messages of
    the previous one (the same objects) costs only what is new in it. Used for one request at a time, and not again
    after an error.
    """

    @property
    def size_bytes(self) -> int:
        """Approximate memory in bytes."""
        ...

    def unwritten(self, request: ProviderRequest) -> Unwritten:
        """Returns the messages and files that `prepare` has yet to write."""
        ...

    def prepare(self, request: ProviderRequest) -> PreparedRequest:
        """Returns the request in the API's form. Pure: equal requests give equal bodies; never fails.

        When a request extends another one (its messages begin with those of the other, under the same system prompt,
        tools and `prefix_changed`), its body repeats these messages byte for byte, except for cache marks.

        Args:
            request: The request, with the files that `unwritten` named, as far as they are stored.
        """
        ...


class ProviderOrigin(Struct, frozen=True):
    """The provider that answers, and its address, as failures name them."""

    provider_id: str
    host: str = ""
    """Includes the port if the address has one; "" for a provider without an address."""

    def name_in(self, error: ProviderError) -> None:
        """Adds it to an error: to the message, and as metadata `providerId` and `providerHost`. Not idempotent."""
        named = f"the provider {self.provider_id}" + (f" at {self.host}" if self.host else "")
        error.message = error.message.replace("the provider", named, 1)
        error.args = (error.message,)
        error.metadata["providerId"] = self.provider_id
        if self.host:
            error.metadata["providerHost"] = self.host


class Provider(Protocol):
    """One configured model API."""

    provider_id: str
    origin: ProviderOrigin
    """For errors that are found in its answers; errors that `stream` raises already name it."""
    api: str
    """The `api` of its configuration."""

    def writer(self) -> RequestWriter:
        """Returns a writer for a conversation."""
        ...

    def stream(self, prepared: PreparedRequest) -> AsyncGenerator[StreamItem]:
        """Calls the model once.

        Returns an async generator; nothing is sent before its first item is requested. It keeps the body no longer than
        the provider needs to read it, so a prepared request can be sent once only. Closing the generator (`aclose`, or
        cancelling the task that iterates it) ends the HTTP request at once.

        Raises:
            ProviderError: the call fails, the stream reports an error, or the stream ends without the API's end marker
                (`ProviderStreamCut`). Items that were yielded before stay valid.
        """
        ...

    async def aclose(self) -> None:
        """Closes the HTTP connections. Idempotent."""
        ...


class ModelDescription(Struct, frozen=True, kw_only=True):
    """Facts about a model; None where unknown."""

    model_id: str
    name: str
    description: str = ""
    context_window_tokens: int | None = None
    max_output_tokens: int | None = None
    input_price_pico_usd_per_million: int | None = None
    output_price_pico_usd_per_million: int | None = None
    cache_read_price_pico_usd_per_million: int | None = None
    cache_write_price_pico_usd_per_million: int | None = None
    capabilities: tuple[str, ...] | None = None
    """Any of "tools", "images", "documents" and "reasoning"; None when the configuration does not state them."""


class ProviderDescription(Struct, frozen=True, kw_only=True):
    """Public facts about a provider. Never holds a key."""

    provider_id: str
    name: str
    source: str
    """"builtin", "env" or "config"."""
    key_variables: tuple[str, ...] = ()
    options: Mapping[str, str] = {}
    models: tuple[ModelDescription, ...] = ()
    default_model: str = ""


class Providers(Protocol):
    """All configured providers."""

    def describe(self) -> tuple[ProviderDescription, ...]:
        """Returns the providers ordered by id. Does no network I/O but may block for a while; run it on a thread."""
        ...

    def check(self, model: ModelRef) -> None:
        """Checks that a model can be called, as far as the configuration shows. Does no I/O and imports no SDK.

        Raises:
            UnknownModel: there is no such provider, or it offers only listed models and this one is not listed.
            ProviderCredentialsRejected: its key variable is not set.
        """
        ...

    def check_options(self, model: ModelRef, options: GenerationOptions) -> None:
        """Checks that the API of a checked model supports the options. Does no I/O and imports no SDK.

        Raises:
            InvalidRequest: it does not; names the option.
        """
        ...

    async def get(self, provider_id: str) -> Provider:
        """Returns the provider, which is made on first use.

        That imports its SDK and reads the known facts about its models, without blocking the event loop.

        Raises:
            UnknownModel: there is no such provider.
            ProviderCredentialsRejected: its key variable is not set.
        """
        ...

    def cost_pico_usd(self, model: ModelRef, usage: Usage) -> int | None:
        """Returns the cost of the usage; None when the model's price is unknown. Does no I/O after `get`."""
        ...

    def capabilities(self, model: ModelRef) -> tuple[str, ...] | None:
        """Returns the configured capabilities of a model; None when they are not configured. Does no I/O."""
        ...

    def context_window_tokens(self, model: ModelRef) -> int | None:
        """Returns the model's context window in tokens; None when it is unknown. Does no I/O after `get`."""
        ...

    async def aclose(self) -> None:
        """Closes all providers. Idempotent."""
        ...
