"""The words of texts in many scripts."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwire.domain.searching.words import MAX_WORD_CHARACTERS, tokens, words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("... !?", []),
        ("Hello, World-wide snake_case don't 3.14", ["hello", "world", "wide", "snake", "case", "don", "t", "3", "14"]),
        ("Ünïcode STRASSE Straße ﬁne ＡＢＣ", ["unicode", "strasse", "strasse", "fine", "abc"]),
        ("e\u0301te\u0301 été", ["ete", "ete"]),
        ("İstanbul \u212bngström", ["istanbul", "angstrom"]),
        ("北京天安门", ["北京", "京天", "天安", "安门", "门"]),
        ("京", ["京"]),
        ("版本3是北京", ["版本", "本", "3", "是北", "北京", "京"]),
        ("ｶﾞｷﾞ", ["ガギ", "ギ"]),
        ("東京タワー", ["東京", "京タ", "タワ", "ワー", "ー"]),
        ("학교에서 옴", ["학교", "교에", "에서", "서", "옴"]),
        ("สวัสดี", ["สว", "วั", "ัส", "สด", "ดี", "ี"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("שָׁלוֹם", ["שלום"]),
        ("مَرْحَبًا مرحبا", ["مرحبا", "مرحبا"]),
        ("می\u200cخواهم", ["میخواهم"]),
        ("co\u00adoperate", ["cooperate"]),
        ("👩\u200d💻 party🎉🎉", ["👩", "💻", "party", "🎉", "🎉"]),
        ("ﷺ", ["صلى", "الله", "عليه", "وسلم"]),
        ("½ x²", ["1", "2", "x2"]),
        ("x" * 100, ["x" * MAX_WORD_CHARACTERS]),
        ("X" * 100 + "ü", ["x" * MAX_WORD_CHARACTERS]),
    ],
)
def test_a_text_has_words(text: str, expected: list[str]) -> None:
    """The same with and without their places."""
    assert tokens(text) == expected
    assert [word.text for word in words(text)] == expected


def test_words_have_their_places() -> None:
    """In the text as it is, whatever the words became."""
    text = "Ein Straßenfest in 北京"
    assert [text[word.start : word.end] for word in words(text)] == ["Ein", "Straßenfest", "in", "北京", "京"]


@given(st.text(max_size=60))
def test_words_are_made_of_letters(text: str) -> None:
    """No character of a word is a separator of the index, and the places of words are in the text, in order."""
    found = words(text)
    assert [word.text for word in found] == tokens(text)
    assert all((word.text and not word.text.isascii()) or word.text.isalnum() for word in found)
    assert not [word for word in found if set(word.text) & set(" \t\n\"'*_.-()")]
    starts = [word.start for word in found]
    assert starts == sorted(starts)
    assert all(0 <= word.start < word.end <= len(text) for word in found)


@given(st.text(max_size=30))
def test_the_form_of_a_text_does_not_count(text: str) -> None:
    """Composed and decomposed characters have the same words."""
    assert tokens(unicodedata.normalize("NFD", text)) == tokens(unicodedata.normalize("NFC", text))
