"""Files that the messages and tool results of a session refer to."""

from turnwire.core.environment import Environment
from turnwire.domain.errors import StoredFileNotFound
from turnwire.domain.principal import Principal


class Files:
    """The use cases about stored files."""

    def __init__(self, environment: Environment) -> None:
        """Takes the ports."""
        self._environment = environment

    async def read(self, principal: Principal, session_id: str, sha256: str) -> bytes:
        """Returns the bytes of a file that a message of the session refers to.

        Raises:
            SessionNotFound: there is no such session.
            StoredFileNotFound: no message of the session refers to such a file.
            StorageError: the file could not be read.
        """
        content = await self._environment.store.of(principal.tenant).session_file(session_id, sha256)
        if content is None:
            raise StoredFileNotFound(sha256)
        return content
