"""Files as messages of the contract."""

from opencode.file import file_pb2, upload_pb2
from turnwire.api.wire.answers.times import timestamp
from turnwire.domain.conversation import messages as m
from turnwire.ports.moving.uploads import Upload

_FORMS = {
    m.FileForm.UNKNOWN: file_pb2.FILE_FORM_UNSPECIFIED,
    m.FileForm.TEXT: file_pb2.FILE_FORM_TEXT,
    m.FileForm.IMAGE: file_pb2.FILE_FORM_IMAGE,
    m.FileForm.DOCUMENT: file_pb2.FILE_FORM_DOCUMENT,
    m.FileForm.NAME_ONLY: file_pb2.FILE_FORM_NAME_ONLY,
}


def file(value: m.File) -> file_pb2.FileRef:
    """Returns a reference to a file of a message or of a tool result."""
    return file_pb2.FileRef(
        sha256=value.sha256,
        size_bytes=value.size_bytes,
        mime=value.mime,
        filename=value.filename,
        path=value.path,
        language=value.language,
        form=_FORMS[value.form],
    )


def upload(value: Upload) -> upload_pb2.Upload:
    """Returns an upload without its bytes."""
    return upload_pb2.Upload(
        upload_id=value.upload_id,
        size_bytes=value.size_bytes,
        received_bytes=value.received_bytes,
        sha256=value.sha256,
        expire_time=timestamp(value.expires_at),
        mime=value.mime,
        filename=value.filename,
        create_time=timestamp(value.created_at),
    )
