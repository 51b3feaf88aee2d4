"""Cuts a growing markdown text into blocks that no later text changes."""

from collections import deque
from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token

from turnwire.cli.visible_text import visible

MAX_BLOCK_CHARS = 4096
"""A longer block is cut, so that reading and drawing the open block costs the same however long a text grows."""

_PIECE_CHARS = 2 * MAX_BLOCK_CHARS

_READER = MarkdownIt("commonmark", {"html": False}).enable("table")
_READER.core.ruler.enableOnly(["normalize", "block"])


class Block(NamedTuple):
    """A piece of markdown that can be drawn for itself."""

    text: str
    continues: bool
    """True when it goes on with the list, table, code or paragraph of the block before: no blank line between them."""


class MarkdownBlocks:
    """A text that grows at its end and is taken block by block. What is taken is forgotten."""

    def __init__(self) -> None:
        """Begins with an empty text."""
        self._new: deque[str] = deque()
        self._text = ""
        self._continues = False
        self._ended = False

    def add(self, text: str) -> None:
        """Adds text at the end, as far as a terminal may show it: then line feeds alone end lines."""
        shown = visible(text)
        self._new.extend(shown[start : start + _PIECE_CHARS] for start in range(0, len(shown), _PIECE_CHARS))

    def end(self) -> None:
        """Says that nothing more is added: the open block is complete."""
        self._ended = True

    @property
    def drained(self) -> bool:
        """Whether the text has ended and all of it was taken."""
        return self._ended and not self._new and not self._text

    @property
    def ready(self) -> bool:
        """Whether `take` may return something before more is added: the text at hand is long, or has ended."""
        return bool(self._new) or len(self._text) >= MAX_BLOCK_CHARS or (self._ended and bool(self._text))

    def take(self, max_chars: int) -> list[Block]:
        """Returns complete blocks in order and forgets them: stops when they have `max_chars` or more."""
        blocks: list[Block] = []
        taken = 0
        while taken < max_chars:
            self._fill()
            complete = self._complete()
            if not complete:
                break
            taken += sum(len(block.text) for block in complete)
            blocks += [block for block in complete if block.text.strip()]
        return blocks

    def open(self) -> Block:
        """Returns the block that still grows, as far as it is known; its text may be ""."""
        self._fill()
        return Block(self._text[:MAX_BLOCK_CHARS], self._continues)

    def _fill(self) -> None:
        """Makes the text at hand long enough for the longest block, and hardly longer: it is copied with each step."""
        pieces, size = [self._text], len(self._text)
        while self._new and size < _PIECE_CHARS:
            pieces.append(self._new.popleft())
            size += len(pieces[-1])
        self._text = "".join(pieces)

    def _complete(self) -> list[Block]:
        """Takes the blocks that are complete, or else one that is too long to wait for its end."""
        window = self._text[:MAX_BLOCK_CHARS]
        is_all = self._ended and not self._new and len(window) == len(self._text)
        lines = (window if is_all else window[: window.rfind("\n") + 1]).splitlines(keepends=True)
        tokens = _READER.parse("".join(lines))
        starts = [token.map[0] for token in tokens if token.level == 0 and token.nesting >= 0 and token.map]
        ends = [*starts[1:], *([len(lines)] if is_all and lines else [])]
        if not ends and len(window) == MAX_BLOCK_CHARS:
            return [self._too_long(window, lines, tokens)]
        begins = [0, *ends]
        return [self._cut(len("".join(lines[begin:end]))) for begin, end in zip(begins, ends, strict=False)]

    def _too_long(self, window: str, lines: list[str], tokens: list[Token]) -> Block:
        first = tokens[0] if tokens else None
        end = len("".join(lines))
        match first.type if first is not None else "":
            case "fence" if first is not None and len(lines) > 1:
                return self._cut(end, closing=first.markup, again=lines[0])
            case "table_open" if len(lines) > 2:
                return self._cut(end, again="".join(lines[:2]))
            case "bullet_list_open" | "ordered_list_open":
                items = [
                    token.map[0]
                    for token in tokens
                    if token.type == "list_item_open" and token.level == 1 and token.map
                ]
                if items[-1] > 0:
                    return self._cut(len("".join(lines[: items[-1]])), goes_on=True)
        return self._cut(end or window.rfind(" ") + 1 or len(window), goes_on=True)

    def _cut(self, size: int, *, closing: str = "", again: str = "", goes_on: bool = False) -> Block:
        """Takes `size` characters. `closing` ends them, and `again` begins the rest, which is more of the same."""
        block = Block(self._text[:size] + closing, self._continues)
        self._text = again + self._text[size:]
        self._continues = goes_on or bool(again)
        return block
