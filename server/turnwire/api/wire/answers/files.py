"""Files as messages of the contract."""

from opencode.file import file_pb2
from turnwire.domain.conversation import messages as m


def file(value: m.File) -> file_pb2.FileRef:
    """Returns a reference to a file of a message or of a tool result."""
    return file_pb2.FileRef(
        sha256=value.sha256,
        size_bytes=value.size_bytes,
        mime=value.mime,
        filename=value.filename,
        path=value.path,
        language=value.language,
    )
