"""Titles from first messages."""

import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fakes.domain_values import make_file, make_message
from turnwire.domain.conversation.messages import Content, MessageType, Reasoning, Text
from turnwire.domain.conversation.titles import MAX_FIRST_WORDS_CHARACTERS, first_words

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
FLAG = "\U0001f1e9\U0001f1ea"


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("Plan the trip", "Plan the trip"),
        ("", ""),
        (" \t\n\u00a0\u2003\u3000\u2028", ""),
        ("\n\n  Hello,\r\n\tworld  ", "Hello, world"),
        ("a\x00b\x1b[31mc\x07", "a b [31mc"),
        ("\u202egpj.exe\u202c and \u2066this\u2069\u200f", "gpj.exe and this"),
        ("\ufeffBOM and soft\u00adhyphen and zero\u200bwidth", "BOM and softhyphen and zerowidth"),
        ("\u200b\u200d\u2060\ufe0f\u3164\u115f\u2800\U000e0041", ""),
        (f"{FAMILY} at home \u2764\ufe0f", f"{FAMILY} at home \u2764\ufe0f"),
        ("\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"),
        ("\u200d joined \u200c", "joined"),
        ("x" * 60, "x" * 60),
        ("x" * 61, "x" * 59 + "…"),
        ("word " * 100, "word " * 11 + "word…"),
        ("short " + "x" * 80, "short " + "x" * 53 + "…"),
        ("\u6f22" * 100, "\u6f22" * 59 + "…"),
        (FAMILY * 30, FAMILY * 11 + "…"),
        ("a" + FLAG * 40, "a" + FLAG * 29 + "…"),
        (FLAG * 40, FLAG * 29 + "…"),
        ("e\u0301" * 40, "e\u0301" * 29 + "…"),
        ("\U0001f44d\U0001f3fd" * 40, "\U0001f44d\U0001f3fd" * 29 + "…"),
        ("a" + "\u0301" * 100, "a" + "\u0301" * 58 + "…"),
    ],
)
def test_words_are_one_line_that_is_seen(written: str, words: str) -> None:
    """Without what controls a screen, cut behind a word or between two characters."""
    assert first_words(make_message("msg_1", written)) == words
    assert len(words) <= MAX_FIRST_WORDS_CHARACTERS


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ((Text(" "), Text("second"), Text("third")), "second third"),
        ((make_file(b"x", "plan.txt"),), "plan.txt"),
        ((make_file(b"x", ""), make_file(b"y", "b\n\u202etxt.exe")), "b txt.exe"),
        ((make_file(b"x", "plan.txt"), Text("Read this")), "Read this"),
        ((make_file(b"x", "plan.txt"), Text("\u200b \n")), "plan.txt"),
        ((make_file(b"x", ""),), ""),
        ((Reasoning("hidden"),), ""),
        ((), ""),
    ],
)
def test_a_file_names_what_has_no_words(parts: tuple[Content, ...], words: str) -> None:
    """Texts come first, in order, then the first file that has a name."""
    assert first_words(make_message("msg_1", *parts)) == words


@pytest.mark.parametrize("kind", [kind for kind in MessageType if kind is not MessageType.USER])
def test_only_a_user_gives_a_title(kind: MessageType) -> None:
    """Not what models, tools and programs say."""
    assert first_words(make_message("msg_1", "words", type=kind)) == ""


@pytest.mark.parametrize(
    "written", ["x" * 2**24, " " * 2**24 + "x", "x \n" * 2**22, "\u0301" * 2**24, FLAG * 2**22, "\u200b" * 2**24]
)
def test_a_long_message_costs_no_more(written: str) -> None:
    """However much a client sends, only the beginning is looked at."""
    message = make_message("msg_1", written)
    began = time.thread_time()
    first_words(message)
    assert time.thread_time() - began < 0.1


@given(st.text())
def test_whatever_is_written(written: str) -> None:
    """It is one line, short, and has no character that controls others; what it is made of was written."""
    words = first_words(make_message("msg_1", written))
    assert len(words) <= MAX_FIRST_WORDS_CHARACTERS
    assert words == " ".join(words.split())
    kinds = {unicodedata.category(char) for char in words if char not in "\u200c\u200d"}
    assert not kinds & {"Cc", "Cf", "Zl", "Zp"}
    assert set(words) <= {*written, " ", "…"}
