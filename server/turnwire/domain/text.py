"""Makes text that can be stored and sent: valid UTF-8; text that can be shown in one line, or compared."""

import unicodedata


def utf8_bytes(text: str) -> int:
    """Returns the length of the text in UTF-8 bytes; constant time for ASCII."""
    return len(text) if text.isascii() else len(text.encode())


def join_surrogates(text: str) -> str:
    """Returns the text with surrogate pairs joined and lone halves replaced by U+FFFD, so that it can be encoded."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def one_line(text: str, max_chars: int) -> str:
    """Returns foreign text for a log line or a label: cut, with "?" in place of what cannot be printed."""
    cut = text[:max_chars]
    return cut if cut.isprintable() else "".join(char if char.isprintable() else "?" for char in cut)


def folded(text: str) -> str:
    """Returns the form of a text in which upper and lower case, and forms of one character, do not differ."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
