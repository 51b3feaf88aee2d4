"""One part of an answer while a model writes it."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from opencode.event.session_event_pb2 import PartDelta
from opencode.message.content_pb2 import Part
from turnwire.cli.chat.plain.turn_printer import text_of
from turnwire.cli.chat.view import drawings
from turnwire.cli.chat.view.markdown_blocks import MarkdownBlocks


class GrowingPart:
    """Keeps to the rule of `PartDelta`. Texts are cut into markdown blocks; of the others the whole is kept."""

    def __init__(self, part: Part, started_at: float) -> None:
        """Begins a part with nothing of its text.

        Args:
            part: The part as it was announced.
            started_at: When, in seconds of the transcript's clock.
        """
        self.kind = part.WhichOneof("content") or ""
        self._started_at = started_at
        self._blocks = MarkdownBlocks()
        self._ended_at: float | None = None
        self._name = part.tool_use.name
        self._held = bytearray()

    def grow(self, delta: PartDelta) -> None:
        """Appends what the delta adds to what is held; skips it when something before it is missing."""
        held = len(self._held)
        if delta.offset <= held:
            self._append(delta.text.encode()[held - delta.offset :])

    def become(self, part: Part) -> None:
        """Takes the part as it is now, which counts more than the deltas."""
        whole = text_of(part).encode()
        if self._held.startswith(whole):
            return  # a server that was killed had not stored the rest, which was drawn
        if not whole.startswith(self._held):
            # What was drawn cannot be taken back, so the right text follows it.
            self._held.clear()
            self._blocks.add("\n\n")
        self._append(whole[len(self._held) :])

    def end(self, now: float) -> None:
        """Says that the part is complete."""
        self._blocks.end()
        self._ended_at = now

    @property
    def drawn(self) -> bool:
        """Whether all of the part was taken. Tool calls are drawn apart."""
        return self._ended_at is not None and self._blocks.drained

    @property
    def ready(self) -> bool:
        """Whether `take` may return something now."""
        return self._blocks.ready if self._is_text else self._ended_at is not None

    def take(self, max_chars: int) -> tuple[list[RenderableType], int]:
        """Returns drawings of what is complete and was not taken, and how many characters they show."""
        if self._is_text:
            blocks = self._blocks.take(max_chars)
            return [drawn for block in blocks for drawn in drawings.markdown(block)], sum(len(b.text) for b in blocks)
        if self.kind == "reasoning" and self._ended_at is not None:
            return [drawings.reasoning(len(self.text()), self._ended_at - self._started_at)], 100
        return [], 0

    def text(self) -> str:
        """Returns what is held."""
        return self._held.decode()

    def live(self, now: float) -> Iterator[RenderableType]:
        """Yields what shows that the part grows."""
        seconds = drawings.duration(now - self._started_at)
        if self._is_text:
            block = self._blocks.open()
            if block.text.strip():
                yield from drawings.markdown(block)
        elif self.kind == "reasoning":
            yield Text(f"\n∴ reasons … {len(self._held):,} bytes in {seconds}", style="dim italic")
        elif self.kind == "tool_use":
            yield drawings.note(f"\n● {self._name} … writes its arguments, {len(self._held):,} bytes")

    @property
    def _is_text(self) -> bool:
        return self.kind in ("text", "refusal")

    def _append(self, new: bytes) -> None:
        self._held += new
        if self._is_text and new:
            self._blocks.add(new.decode(errors="ignore"))
