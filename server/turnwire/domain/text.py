"""Text as it can be stored and sent: valid UTF-8."""


def join_surrogates(text: str) -> str:
    """Returns the text with surrogate pairs joined and lone halves replaced by U+FFFD, so that it can be encoded."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
