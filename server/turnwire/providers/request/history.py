"""Writes the messages of one conversation's requests, and keeps what it wrote.

A request mostly begins with the messages of the request before it, and their form depends only on the messages before
them. So a writer compares the messages with those that it has written, goes back to the first that differs, and writes
from there. Messages that later ones may change (after `_settled`) are written again each time; they are at the very
end.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

from msgspec import Struct

from turnwire.domain.conversation.messages import Message
from turnwire.domain.conversation.turns import ToolDefinition
from turnwire.ports.provider import PreparedRequest, ProviderRequest, Unwritten
from turnwire.providers.request.encoding import encoded
from turnwire.providers.request.growing import Growing, Mark, common_length
from turnwire.providers.request.reader import RequestReader


class Pieces(Struct, frozen=True):
    """A value that is already JSON."""

    pieces: list[bytes]


Members = list[tuple[str, object]]
"""The members of a request's body in order, each a value or its `Pieces`."""

ToolForm = Callable[[str, str, dict[str, Any]], dict[str, Any]]
"""Returns a tool in the API's form, from its name, its description and the schema of its arguments."""

_BOOKKEEPING_BYTES = 400
"""Memory counted per message in addition to its pieces: a mark and the entries in the lists."""


class HistoryWriter(ABC):
    """Implements `ports.provider.RequestWriter` for one API. Each API has a subclass, which writes the messages.

    A subclass appends only to `pieces` and to the containers that it passes to `__init__`, so that everything can go
    back. `_marks[n]` is the state before message n.
    """

    minds_prefix = False
    """Whether the form of a message depends on `ProviderRequest.prefix_changed`."""

    def __init__(self, reader: RequestReader, pieces: list[bytes], *grown: list[Any] | dict[Any, Any]) -> None:
        """Args:
        reader: A new one, used only by this writer.
        pieces: The list to which the subclass appends the JSON of the messages, separators included.
        grown: Other containers of the subclass that grow while messages are written.
        """
        self.reader = reader
        self.pieces = pieces
        self._weights: list[int] = []
        """The size of the messages up to and including each, in bytes."""
        self._state = Growing((*reader.grown, self.pieces, self._weights, *grown))
        self._first_piece = 0
        """The index of the first piece of the message that is being written."""
        self._messages: list[Message] = []
        self._marks: list[Mark] = []
        self._settled = 0
        self._asked: object = None
        self._changed = frozenset[str]()
        self._tools: dict[ToolDefinition, bytes] = {}

    @property
    def size_bytes(self) -> int:
        """See `RequestWriter.size_bytes`."""
        return self._weights[-1] if self._weights else 0

    def unwritten(self, request: ProviderRequest) -> Unwritten:
        """See `RequestWriter.unwritten`."""
        messages = request.messages[self._kept(request) :]
        files = (file.sha256 for message in messages for file in chain(message.files(), message.result_files()))
        return Unwritten(messages, frozenset(self.reader.absent).union(files))

    def prepare(self, request: ProviderRequest) -> PreparedRequest:
        """See `RequestWriter.prepare`."""
        kept = self._kept(request)
        self._go_back(kept)
        self._asked, self._changed = (request.model_id, request.capabilities), request.prefix_changed
        self.reader.request = request
        self._settled = self._write_from(kept, request.messages)
        end = self._state.mark()
        pieces = self._body(request)
        prepared = PreparedRequest(request=request, pieces=pieces, repairs=self.reader.repairs.in_order())
        self._state.go_back(end)
        self.reader.repairs.of_request.clear()
        self.reader.request = None
        return prepared

    @abstractmethod
    def _write_from(self, first: int, messages: Sequence[Message]) -> int:
        """Writes the messages from the first on, each between `_begin` and `_end`.

        Returns the number of messages whose form no later message changes.
        """

    @abstractmethod
    def _members(self, request: ProviderRequest) -> Members:
        """Returns the body's members. May write what the API requires after the messages; that is removed again."""

    def _boundary(self, kept: int, messages: Sequence[Message]) -> int:
        """Returns the message from which to write when the first `kept` messages are the same: that number or a lower
        one.
        """
        del messages
        return kept

    def _begin(self, message: Message) -> None:
        self._marks.append(self._state.mark())
        self._messages.append(message)
        self.reader.begin(len(self._messages) - 1)
        self._first_piece = len(self.pieces)

    def _end(self) -> None:
        self.reader.end()
        added = sum(map(len, self.pieces[self._first_piece :]))
        self._weights.append(self.size_bytes + _BOOKKEEPING_BYTES + added)

    def _go_back(self, kept: int) -> None:
        """Forgets all except the first messages."""
        if kept < len(self._marks):
            self._state.go_back(self._marks[kept])
            del self._marks[kept:], self._messages[kept:]

    def _kept(self, request: ProviderRequest) -> int:
        """Returns the number of first messages that need not be written again."""
        if self._asked != (request.model_id, request.capabilities):
            return 0
        kept = common_length(self._messages, request.messages)
        kept = min(kept, self._settled, *(at for sha256, at in self.reader.absent.items() if sha256 in request.files))
        if self.minds_prefix and self._changed != request.prefix_changed:
            changed = self._changed ^ request.prefix_changed
            for at in range(kept):
                if self._messages[at].message_id in changed:
                    kept = at
                    break
        return self._boundary(kept, request.messages)

    def _body(self, request: ProviderRequest) -> tuple[bytes, ...]:
        """Returns the body in pieces."""
        body: list[bytes] = []
        members = self._members(request)
        for at, (name, value) in enumerate(members):
            body.append((b"," if at else b"{") + encoded(name) + b":")
            body += value.pieces if isinstance(value, Pieces) else [encoded(value)]
        body.append(b"}")
        return tuple(body)

    def _encoded_tools(self, tools: Sequence[ToolDefinition], form: ToolForm) -> Pieces:
        """Returns the tools as JSON, and reuses what was written for the request before."""
        known, self._tools = self._tools, {}
        for tool in tools:
            name, schema = self.reader.tool(tool)
            self._tools[tool] = known.get(tool) or encoded(form(name, tool.description, schema))
        return Pieces([b"[" + b",".join(self._tools[tool] for tool in tools) + b"]"])
