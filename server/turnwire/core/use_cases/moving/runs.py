"""One import: reads an archive twice, because nothing may be stored of a wrong one.

The first reading checks everything. In the second one session after session is brought: here, or with several servers
by those that have them.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import BinaryIO

from turnwire.core.environment import Environment
from turnwire.core.servers import ServerLost, Servers
from turnwire.core.use_cases.moving.bringing import (
    NOT_STORED,
    Bringing,
    Brought,
    ImportRequest,
    is_allowed,
    left_out,
    source_of,
)
from turnwire.core.use_cases.moving.parts import Reading
from turnwire.core.use_cases.moving.progress import ImportProgress
from turnwire.core.use_cases.moving.shares import SharePlan, ShareReport, ShareRequest, Shares, decoded_report, encoded
from turnwire.core.use_cases.moving.validation import Validation
from turnwire.domain.archive.records import ArchivedSession
from turnwire.domain.errors import ShuttingDown
from turnwire.domain.principal import Principal
from turnwire.event_loop.tasks import end
from turnwire.ports.moving.archives import ArchiveReader

PATIENCE_SECONDS = 10.0
"""Maximum time for which an import waits for an owner of sessions that none has, or takes: longer than a dead server's
are without one."""

LOOK_AGAIN_SECONDS = 0.1
"""Longest time between two looks meanwhile."""


class ImportRun:
    """Carries one import out. Used by one task, which may be cancelled: what is half stored is removed."""

    def __init__(
        self,
        environment: Environment,
        principal: Principal,
        request: ImportRequest,
        *,
        reader: ArchiveReader,
        progress: ImportProgress,
        shares: Shares,
    ) -> None:
        """Takes the ports, whose sessions they will be, and what carries out the share of this server."""
        self._environment = environment
        self._principal = principal
        self._request = request
        self._reader = reader
        self._progress = progress
        self._shares = shares
        self._is_shared = environment.servers is not None and not request.stores_nothing
        self._plan = SharePlan()
        self._positions: dict[str, int] = {}

    async def carry_out(self, archive: BinaryIO) -> None:
        """Checks the whole archive, then stores its sessions; in a dry run it says what it would store.

        Args:
            archive: Can seek.

        Raises:
            ArchiveInvalid: it cannot be imported; nothing was stored.
            InvalidRequest: an option is wrong.
            StorageError: nothing more can be stored; what was imported stays.
        """
        await self._validate(archive)
        servers = self._environment.servers
        if servers is None or not self._is_shared:
            bringing = Bringing(self._environment, self._principal, self._request, self._reader, self._note_position)
            await bringing.bring(archive, self._note)
        else:
            await self._bring_everywhere(servers, archive)
        self._progress.done_bytes = self._progress.total_bytes

    async def _validate(self, archive: BinaryIO) -> None:
        environment, principal = self._environment, self._principal
        reading = Reading(self._reader, archive, self._request.options)
        validation = Validation(
            lambda directory: is_allowed(environment, principal, directory), checks_values=not self._reader.keeps_ids
        )
        while batch := await reading.next():
            for problem in await asyncio.to_thread(validation.check, batch):
                self._progress.add_problem(problem)
            for one in batch:
                if isinstance(one, ArchivedSession) and self._is_shared:
                    source = source_of(principal, self._request, self._reader, one.session)
                    first = next(source.candidates(environment.store.token_key, environment.new_id))
                    self._plan.add(first.session_id)
            self._progress.done_bytes = reading.position // 2

    async def _bring_everywhere(self, servers: Servers, archive: BinaryIO) -> None:
        """Has the owners of the sessions bring them, round by round, as long as that brings any."""
        plan, loop = self._plan, asyncio.get_running_loop()
        ends_at = loop.time() + PATIENCE_SECONDS
        while plan.left:
            changes = plan.changes
            divided = await plan.by_owner(servers.owner_of)
            if None not in divided or loop.time() >= ends_at:  # else some may have an owner soon
                shares = {address: candidates for address, candidates in divided.items() if address is not None}
                await self._round(servers, archive, shares)
            if plan.changes != changes:
                ends_at = loop.time() + PATIENCE_SECONDS
            elif loop.time() >= ends_at:
                await self._leave_rest_out(archive)
                return
            else:
                await servers.changed(LOOK_AGAIN_SECONDS)

    async def _round(self, servers: Servers, archive: BinaryIO, shares: dict[str, bytes]) -> None:
        """Returns when each owner has brought what it can. Raises what makes one of them end the import."""
        self._positions = dict.fromkeys(shares, 0)
        following = [
            asyncio.create_task(
                self._follow(address, self._reports(servers, address, ShareRequest(self._request, candidates), archive))
            )
            for address, candidates in shares.items()
        ]
        try:
            if following:
                done, _ = await asyncio.wait(following, return_when=asyncio.FIRST_EXCEPTION)
                for task in done:
                    task.result()
        finally:
            await end(following)

    async def _reports(
        self, servers: Servers, address: str, share: ShareRequest, archive: BinaryIO
    ) -> AsyncGenerator[ShareReport]:
        if not address:
            async with contextlib.aclosing(self._shares.carry_out(self._principal, share, archive)) as reports:
                async for report in reports:
                    yield report
            return
        async with contextlib.aclosing(servers.share(address, self._principal, encoded(share))) as answers:
            async for answer in answers:
                yield decoded_report(answer)

    async def _follow(self, address: str, reports: AsyncGenerator[ShareReport]) -> None:
        """Notes what a server brings. One that is lost, or that loses its sessions, leaves the rest for another one."""
        try:
            async with contextlib.aclosing(reports):
                async for report in reports:
                    for brought in report.brought:
                        if self._plan.note(brought):
                            self._note(brought)
                    self._positions[address] = report.position
                    self._note_position(min(self._positions.values()))
        except (ServerLost, ShuttingDown):
            pass
        self._positions[address] = self._progress.total_bytes

    async def _leave_rest_out(self, archive: BinaryIO) -> None:
        """Says of each session that no server has taken that it is not stored."""
        reading, number = Reading(self._reader, archive, self._request.options), 0
        while batch := await reading.next():
            for one in batch:
                if isinstance(one, ArchivedSession):
                    if self._plan.is_left(number):
                        text = "no server had the session; the same import may bring it"
                        problem = left_out(one.session, NOT_STORED, text)
                        self._note(Brought(number=number, problem=problem, is_refused=True, is_incomplete=True))
                    number += 1

    def _note(self, brought: Brought) -> None:
        progress = self._progress
        progress.refused_sessions += brought.is_refused
        progress.incomplete_count += brought.is_incomplete
        if brought.problem is not None:
            progress.add_problem(brought.problem)
        if brought.session is not None:
            progress.add_session(brought.session)

    def _note_position(self, position: int) -> None:
        done = (self._progress.total_bytes + position) // 2
        self._progress.done_bytes = max(done, self._progress.done_bytes)  # a session may be read again
