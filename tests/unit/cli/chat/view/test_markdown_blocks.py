"""A growing markdown text is cut where no later text changes what came before."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwire.cli.chat.view import markdown_blocks
from turnwire.cli.chat.view.markdown_blocks import MAX_BLOCK_CHARS, Block, MarkdownBlocks

BLOCKS = [
    "# Title\n\n",
    "Some *text*\nof two lines.\n\n",
    "- one\n- two\n\n  more\n\n",
    "```python\nx = 1\n\n# no title\n```\n",
    "end",
]
TEXT = "".join(BLOCKS)
PIECES = ["a", "# ", "- ", "1. ", "\n", "\n\n", "```\n", "> ", "| a |\n|---|\n", "  ", "---\n", "\r\n", "\x0b"]


def cut(*pieces: str) -> list[Block]:
    """Returns the blocks of a text that comes in pieces, each taken as soon as it is complete."""
    growing = MarkdownBlocks()
    blocks: list[Block] = []
    for piece in pieces:
        growing.add(piece)
        blocks += growing.take(1_000_000)
    growing.end()
    blocks += growing.take(1_000_000)
    assert growing.drained
    assert not growing.ready
    return blocks


def test_blocks_are_those_of_markdown() -> None:
    """Code and lists with empty lines are one block each."""
    assert cut(TEXT) == [Block(text, continues=False) for text in BLOCKS]


def test_blocks_do_not_depend_on_how_the_text_comes() -> None:
    """Character by character gives the same blocks, each as early as it is certain."""
    assert cut(*TEXT) == cut(TEXT)


@given(st.lists(st.sampled_from(PIECES)))
def test_no_character_is_lost_or_doubled(pieces: list[str]) -> None:
    """But for empty lines between blocks, and what a terminal must not be sent."""
    text = "".join(pieces)
    joined = "".join(block.text for block in cut(*pieces))
    assert joined.split() == text.replace("\x0b", "").split()
    assert cut(*pieces) == cut(text)


def test_the_open_block_is_what_is_not_certain() -> None:
    """A line that has not ended may become anything."""
    growing = MarkdownBlocks()
    growing.add("one\n\ntwo\n#")
    assert growing.take(1000) == [Block("one\n\n", continues=False)]
    assert growing.open() == Block("two\n#", continues=False)


def test_a_long_list_is_cut_between_items() -> None:
    """The rest goes on without an empty line; its numbers go on too."""
    text = "".join(f"{n}. item\n" for n in range(1, 2000))
    blocks = cut(text)
    assert "".join(block.text for block in blocks) == text
    assert [block.continues for block in blocks] == [False] + [True] * (len(blocks) - 1)
    assert all(block.text[0].isdigit() and len(block.text) <= MAX_BLOCK_CHARS for block in blocks)


def test_long_code_is_code_in_each_piece() -> None:
    """Each begins with the language and ends."""
    blocks = cut("```python\n" + "x = 1\n" * 3000 + "```\n")
    assert len(blocks) > 3
    assert all(block.text.startswith("```python\n") and block.text.rstrip().endswith("```") for block in blocks)
    assert sum(block.text.count("x = 1\n") for block in blocks) == 3000


def test_a_long_table_keeps_its_heading() -> None:
    """In each piece."""
    blocks = cut("| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * 2000)
    assert all(block.text.startswith("| a | b |\n|---|---|\n") for block in blocks)
    assert sum(block.text.count("| 1 | 2 |") for block in blocks) == 2000


@pytest.mark.parametrize("text", ["x" * 50_000, "word " * 10_000, "> a\n" * 10_000, "```" + "x" * 9000])
def test_nothing_is_longer_than_a_block(text: str) -> None:
    """Also without any place to cut."""
    blocks = cut(text)
    assert "".join(block.text for block in blocks) == text
    assert max(len(block.text) for block in blocks) <= MAX_BLOCK_CHARS


@pytest.mark.parametrize(
    "text", ["a\n\n" * 20_000, "- a\n" * 20_000, "word " * 20_000, "```\n" + "x\n" * 30_000, "> " * 9000]
)
def test_the_work_grows_with_the_text_and_not_with_its_square(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However it is made, each character is read a few times when the text comes in frames."""
    read = 0
    parse = markdown_blocks._READER.parse

    def counting(source: str) -> list:
        nonlocal read
        read += len(source)
        return parse(source)

    monkeypatch.setattr(markdown_blocks._READER, "parse", counting)
    cut(*(text[start : start + 1000] for start in range(0, len(text), 1000)))
    assert read <= 8 * len(text)


def test_what_is_taken_at_once_is_bounded() -> None:
    """By what is asked for, and the length of one block."""
    growing = MarkdownBlocks()
    growing.add("word\n\n" * 100_000)
    assert sum(len(block.text) for block in growing.take(10_000)) <= 10_000 + MAX_BLOCK_CHARS
    assert growing.ready
