"""Uploads that requests name."""

from turnwire.domain.errors import InvalidRequest
from turnwire.ports.moving.uploads import Upload, UploadStore


async def complete_upload(
    store: UploadStore, tenant: str, upload_id: str, field: str = "upload_id", *, used_too: bool = False
) -> Upload:
    """Returns an upload that can be used.

    Args:
        store: Has the uploads.
        tenant: Whose it is.
        upload_id: Its id.
        field: Path of the id in the request, for errors.
        used_too: Whether to return one that was used a while ago at most.

    Raises:
        UploadNotFound: the tenant has no such upload.
        InvalidRequest: it is not complete.
    """
    upload = await store.upload(tenant, upload_id, used_too=used_too)
    if not upload.is_complete:
        received = str(upload.received_bytes)
        text = f"is not complete: {received} bytes came so far, and the last ones are missing"
        raise InvalidRequest.of(field, text, receivedBytes=received)
    return upload
