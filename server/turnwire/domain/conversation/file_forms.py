"""The form in which models get a file: decided by its bytes, with its type and name as hints."""

import re

from turnwire.domain.conversation.messages import File, FileForm

PDF_TYPE = "application/pdf"
PLAIN_TEXT = "text/plain"

_TEXT_TYPE = re.compile(r"text/|.*(json|xml|yaml|toml|javascript|typescript|x-sh|sql|csv|x-httpd-php)$", re.IGNORECASE)
_MEDIA_TYPE = re.compile(r"(image|audio|video|font)/|application/pdf$", re.IGNORECASE)
"""Types that state what the bytes are. A text under such a type is a broken file, which does not help a model."""


def file_form(content: bytes, mime: str, language: str) -> FileForm:
    """Returns the form in which models that accept all forms get a file with these bytes."""
    if image_type(mime, content):
        return FileForm.IMAGE
    if is_pdf(mime, content):
        return FileForm.DOCUMENT
    return FileForm.NAME_ONLY if text_in(content, mime, language) is None else FileForm.TEXT


def is_text(file: File) -> bool:
    """Returns whether models get the content of a file as text, without reading the bytes."""
    if file.form is not FileForm.UNKNOWN:
        return file.form is FileForm.TEXT
    return bool(file.language) or is_text_type(file.mime)


def is_text_type(mime: str) -> bool:
    """Returns whether a media type is one of text."""
    return _TEXT_TYPE.match(mime) is not None


def image_type(mime: str, content: bytes) -> str:
    """Returns the media type of an image that all three APIs accept, by its first bytes; "" for anything else.

    The APIs check it too: an image that is empty, broken or not of its declared type would fail every later request.
    """
    if not content or not mime.lower().startswith("image/"):
        return ""
    if content.startswith(b"\x89PNG"):
        return "image/png"
    if content.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if content.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    return "image/webp" if content.startswith(b"RIFF") and content[8:12] == b"WEBP" else ""


def is_pdf(mime: str, content: bytes) -> bool:
    """Returns whether this is a PDF document, by its type and by its first bytes."""
    return mime == PDF_TYPE and b"%PDF" in content[:1024]


def text_in(content: bytes, mime: str, language: str) -> str | None:
    """Returns the text of a file that is UTF-8 and has no NUL. NUL is allowed if its type or name says that it is text.

    None for anything else.
    """
    is_known = bool(language) or is_text_type(mime)
    if not is_known and (_MEDIA_TYPE.match(mime) or b"\0" in content):
        return None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
