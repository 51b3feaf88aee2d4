"""Uploads that become files of messages and results."""

from turnwire.ports.commit import PutFile, UseUpload
from turnwire.storage.sqlite.uploads import rows
from turnwire.storage.sqlite.writing.messages import put_file
from turnwire.storage.sqlite.writing.unit import Unit


def use_upload(unit: Unit, change: UseUpload) -> None:
    """Stores the bytes of an upload as a file of the session's tenant; they count for the file from now on.

    Raises:
        UploadNotFound: the tenant has no such upload that can be used.
        StorageCorrupt: bytes of it are missing.
    """
    content = rows.use(unit.db, unit.session.tenant, change)
    put_file(unit, PutFile(change.sha256, content))
    unit.file_bytes -= len(content)
