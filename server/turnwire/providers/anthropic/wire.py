"""The messages of an Anthropic Messages request as JSON in pieces; neighbours of the same role are merged."""

from typing import Any

from turnwire.providers.request.encoding import encoded, encoded_in_pieces

Block = dict[str, Any]

CACHE_BREAKPOINT = {"type": "ephemeral"}


class WireMessages:
    """Messages so far. The first piece of a message closes the one before it, so the last message is open."""

    def __init__(self, pieces: list[bytes]) -> None:
        """Takes where to append the pieces."""
        self._pieces = pieces
        self.roles: list[str] = []
        """The role of each message."""
        self._starts: list[int] = []
        """The index of each message's first piece."""
        self._kinds: list[str] = []
        """The types of all blocks."""
        self._firsts: list[int] = []
        """The index of each message's first entry in `_kinds`."""
        self.grown: tuple[list[Any], ...] = (self.roles, self._starts, self._kinds, self._firsts)
        """All lists that grow, except the pieces."""

    def add(self, role: str, blocks: list[Block]) -> None:
        """Adds blocks to the last message, or a message of another role."""
        for block in blocks:
            if self.roles[-1:] == [role]:
                before = b","
            else:
                before = (b"]},{" if self.roles else b"{") + b'"role":' + encoded(role) + b',"content":['
                self.roles.append(role)
                self._starts.append(len(self._pieces))
                self._firsts.append(len(self._kinds))
            self._kinds.append(block["type"])
            first, *others = encoded_in_pieces(block)
            self._pieces += (before + first, *others)

    def kinds_of(self, at: int) -> list[str]:
        """Returns the types of the blocks of a message."""
        end = self._firsts[at + 1] if at + 1 < len(self._firsts) else len(self._kinds)
        return self._kinds[self._firsts[at] : end]

    def closed(self, users_to_mark: int) -> list[bytes]:
        """Returns the list of all messages; the last block of some newest messages of the user has a cache mark."""
        pieces = [b"[", *self._pieces, b"]}]"]
        for at in range(len(self.roles) - 1, -1, -1):
            if not users_to_mark:
                break
            if self.roles[at] == "user":
                users_to_mark -= 1
                # one more than in _pieces, because the bracket comes first
                end = self._starts[at + 1] if at + 1 < len(self._starts) else len(self._pieces)
                pieces[end] = marked(pieces[end])
        return pieces


def marked(block: bytes) -> bytes:
    """Returns a block, or the end of one, with a mark for the prompt cache."""
    return block.removesuffix(b"}") + b',"cache_control":' + encoded(CACHE_BREAKPOINT) + b"}"
