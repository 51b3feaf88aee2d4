"""Makes text for a terminal of what is drawn. Nothing else in the chat writes escape codes."""

import io
from collections.abc import Iterable
from typing import Literal

from rich.console import Console, RenderableType
from rich.segment import Segment, Segments
from rich.theme import Theme

from turnwire.cli.visible_text import visible

_LOOKS = Theme({"markdown.code": "bold cyan", "markdown.code_block": "cyan"})
"""rich's own looks paint code on black, also where the terminal is light."""


def draw(drawings: Iterable[RenderableType], width: int, *, styled: bool = True) -> str:
    """Returns the drawings below each other as lines that all end with a line feed.

    Args:
        drawings: What to draw, from top to bottom.
        width: Columns of the terminal; longer lines are folded.
        styled: False for text without escape codes. True for the colours that the terminal has; none with NO_COLOR.
    """
    file = io.StringIO()
    colours: Literal["auto"] | None = "auto" if styled else None
    console = Console(
        file=file, width=max(width, 1), force_terminal=styled, color_system=colours, highlight=False, theme=_LOOKS
    )
    segments: list[Segment] = []
    for drawing in drawings:
        for line in console.render_lines(drawing, pad=False):
            segments += _trimmed([_harmless(segment) for segment in line])
            segments.append(Segment.line())
    console.print(Segments(segments), end="", crop=False, soft_wrap=True)
    return file.getvalue()


def _harmless(segment: Segment) -> Segment:
    """Returns characters with a look: no control code, and no link, whose target nobody would see.

    Here and not where foreign text comes in, because markdown decodes characters: "%1b" in an address is an escape.
    """
    return Segment(visible(segment.text), segment.style.clear_meta_and_links() if segment.style else None)


def _trimmed(line: list[Segment]) -> list[Segment]:
    """Returns the line without the spaces at its end, which would be copied with it and folded in a narrower window."""
    while line and not line[-1].text.strip(" "):
        line.pop()
    if line:
        line[-1] = Segment(line[-1].text.rstrip(" "), line[-1].style)
    return line
