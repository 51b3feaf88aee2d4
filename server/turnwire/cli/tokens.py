"""`turnwire token`: creates, lists and revokes the tokens of a server, also while it runs."""

import asyncio
import re
import sys
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from turnwire.cli.output import print_error, print_json, print_table
from turnwire.cli.visible_text import visible
from turnwire.config import Config, ConfigError
from turnwire.config.configuration import open_document, read_config
from turnwire.domain.errors import StorageError
from turnwire.domain.ids import new_id
from turnwire.domain.principal import (
    MAX_SUBJECT_CHARACTERS,
    TENANT_NAME,
    TENANT_NAME_FORM,
    Principal,
    Role,
    is_subject,
)
from turnwire.identity.access_tokens import new_token, token_hash
from turnwire.ports.identity.token_book import TokenBook, TokenRecord
from turnwire.storage.tokens import open_tokens

_HEADS = ("token", "tenant", "subject", "role", "created (UTC)", "expires", "last used")

_UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}
MAX_LIFE = timedelta(days=36_500)


class TokenCommands:
    """The commands of one server. Each returns its exit code: 0, 1 if it failed, 2 for wrong options."""

    def __init__(
        self, path: Path | None, environ: Mapping[str, str], options: Mapping[str, str], *, as_json: bool
    ) -> None:
        """Args:
        path: The server's configuration file; None looks for one, as the server does.
        environ: The process's environment.
        options: Options that override both; see `turnwire.config.load_config`.
        as_json: Whether results are JSON.
        """
        self._path = path
        self._environ = environ
        self._options = options
        self._as_json = as_json

    def create(self, tenant: str, subject: str, role: str, expires: str) -> int:
        """Creates a token and prints it: the only time that it can be read.

        Args:
            tenant: The tenant whose data it opens.
            subject: The user of the token.
            role: "reader", "writer" or "admin".
            expires: How long it is valid, such as "90d", "12h" or "30m"; "never".
        """
        now = datetime.now(UTC)
        now = now.replace(microsecond=now.microsecond // 1000 * 1000)  # as it is stored
        problem = _problem(tenant, subject, role)
        life = _life(expires)
        if problem or life is None:
            return _fail(problem or f"--expires {expires!r} is not a time such as 90d, 12h or 30m, nor never", 2)
        token = new_token()
        record = TokenRecord(
            token_id=new_id("tok"),
            token_hash=token_hash(token),
            principal=Principal(tenant=tenant, subject=subject, role=Role(role)),
            created_at=now,
            expires_at=now + life if life else None,
            last_used_at=None,
            revoked_at=None,
        )

        async def add(book: TokenBook, config: Config) -> int:
            await book.add(record)
            if self._as_json:
                print_json({"token": token, **_facts(record)})
            else:
                print(token, flush=True)
                ends = f"expires {_time(record.expires_at)} UTC" if record.expires_at else "never expires"
                made = f"{record.token_id} in {config.token_place()}: {tenant} {visible(subject)} {role}, {ends}"
                print(f"created {made}; the token is not shown again", file=sys.stderr)
            if "token" not in config.auth.methods:
                print_error('no caller can use it yet: add "token" to auth.methods')
            return 0

        return self._with_tokens(add, create=True)

    def list(self) -> int:
        """Prints all tokens, oldest first, without the tokens themselves."""

        async def show(book: TokenBook, _config: Config) -> int:
            records = await book.all()
            if self._as_json:
                print_json([_facts(record) for record in records])
            else:
                print_table(_HEADS, map(_row, records))
            return 0

        return self._with_tokens(show)

    def revoke(self, token_id: str) -> int:
        """Revokes a token. Running servers refuse it within about a second. May be repeated."""

        async def revoke(book: TokenBook, _config: Config) -> int:
            if not await book.revoke(token_id, datetime.now(UTC)):
                return _fail(f"token {token_id!r} was not found: `turnwire token list` shows the ids", 1)
            if self._as_json:
                print_json({"revoked": token_id})
            else:
                print(f"revoked {token_id}")
            return 0

        return self._with_tokens(revoke)

    def _with_tokens(self, action: Callable[[TokenBook, Config], Awaitable[int]], *, create: bool = False) -> int:
        try:
            config = self._config()
        except ConfigError as error:
            return _fail(str(error), 2)

        async def act() -> int:
            book = await open_tokens(config.token_place(), create=create)
            try:
                return await action(book, config)
            finally:
                await book.aclose()

        try:
            return asyncio.run(act())
        except StorageError as error:
            return _fail(error.message, 1)

    def _config(self) -> Config:
        """Returns the server's configuration.

        Raises:
            ConfigError: it is invalid, or does not say where the tokens are: without `storage.path` they are where the
                server was started, which may be another folder than this.
        """
        document = open_document(self._path, self._environ, self._options)
        config = read_config(document)
        named = config.auth.tokens is not None or config.storage.url or document.source("storage.path") != "default"
        if named or document.file is None:
            return config
        path, there = config.storage.path, document.file.parent / config.storage.path
        if path.absolute().parent.samefile(there.parent) or (path.exists() and not there.exists()):
            return config
        if there.exists() and not path.exists():
            return msgspec.structs.replace(config, storage=msgspec.structs.replace(config.storage, path=there))
        problem = f"is left out, so {path} is in the folder where the server was started: set it, or give --db FILE"
        raise document.error("storage.path", problem)


def _problem(tenant: str, subject: str, role: str) -> str:
    if not TENANT_NAME.fullmatch(tenant):
        return f"--tenant {tenant!r} is not {TENANT_NAME_FORM}"
    if not is_subject(subject):
        return f"--subject must be 1 to {MAX_SUBJECT_CHARACTERS} characters that can be printed"
    roles = [known.value for known in Role if known is not Role.ANONYMOUS]
    return "" if role in roles else f"--role {role!r} is not one of {', '.join(roles)}"


def _life(expires: str) -> timedelta | None:
    """Returns how long a token is valid, zero for ever; None if the text is wrong."""
    if expires == "never":
        return timedelta()
    if (found := re.fullmatch(r"([1-9]\d{0,6})([mhd])", expires)) is None:
        return None
    life = int(found[1]) * _UNITS[found[2]]
    return life if life <= MAX_LIFE else None


def _facts(record: TokenRecord) -> dict[str, str | None]:
    times = ("created_at", "expires_at", "last_used_at", "revoked_at")
    return {
        "id": record.token_id,
        "tenant": record.principal.tenant,
        "subject": record.principal.subject,
        "role": record.principal.role.value,
        **{name: None if getattr(record, name) is None else getattr(record, name).isoformat() for name in times},
    }


def _row(record: TokenRecord) -> tuple[str, ...]:
    principal = record.principal
    ends = _time(record.expires_at) if record.expires_at else "never"
    if record.revoked_at:
        ends = f"revoked {_time(record.revoked_at)}"
    used = _time(record.last_used_at) if record.last_used_at else "never"
    return (
        record.token_id,
        principal.tenant,
        principal.subject,
        principal.role.value,
        _time(record.created_at),
        ends,
        used,
    )


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M")


def _fail(problem: str, code: int) -> int:
    print_error(problem)
    return code
