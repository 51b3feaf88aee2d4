"""All together: the world, the clients that act, the clients that watch, and what must hold."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from opencode.message.content_pb2 import SessionMessage
from opencode.turn.turn_service_pb2 import ListAlternativesRequest
from tests.support.clients.conversation import messages_of
from tests.support.delivery.crowd import Crowd
from tests.support.delivery.facts import Facts, Told
from tests.support.delivery.promises import Ledger, Named, Promises
from tests.support.delivery.readers import AllReader, Expected, Place, Reader, SessionReader
from tests.support.delivery.world import World

MANY = 10_000
"""Events that a session keeps where no place gets too old."""

ROUNDS = 200
"""So often something that waits is answered, at most, before a turn is said to go on for ever."""

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Backup:
    """A copy of the database, and what was certain when it was made."""

    path: Path
    at: int
    heads: dict[str, int]
    """Session -> its head after the copy was made: what is behind is not in it."""
    promises: Promises
    told: Told
    restores: "tuple[tuple[int, Backup], ...]"
    """When which backup had been put back before."""


class Town:
    """Use `start` and `close`; everything on one event loop."""

    def __init__(self, folder: Path) -> None:
        self.world = World(folder)
        self.ledger = Ledger()
        self.crowd = Crowd(self.world, self.ledger)
        self.readers: list[Reader] = []
        self.facts = Facts()
        self._prunes = False
        self._restores: list[tuple[int, Backup]] = []
        """When which backup was put back, of those that led to the database of now."""
        self.counts: Counter[str] = Counter()
        """Counts of actions and observations, for reports."""

    async def start(self, *, retained: int, asks_people: bool) -> None:
        """Starts the world."""
        self._prunes = retained < MANY
        await self.world.start(retained=retained, asks_people=asks_people)

    async def close(self) -> None:
        """Ends everything."""
        for reader in self.readers:
            await reader.drop()
        await self.crowd.leave_streams()
        await self.world.close()

    async def stop_for_good(self) -> None:
        """Stops the server in order and examines its database."""
        await self._leave_all()
        await self.world.stop()
        self.world.examine()
        self.counts["server lives"] = self.world.lives
        self.counts["model calls"] = len(self.world.models.requests)
        for reader in self.readers:
            self.counts["batches"] += reader.batches
            self.counts["comparisons"] += reader.markers
            self.counts["read anew"] += reader.resyncs
        self.counts["events"] = sum(self.facts.kinds.values())
        self.counts["turns"] = self.facts.kinds["turn_ended"]
        self.counts["named requests"] = len(self.ledger.named)

    async def look(self) -> None:
        """Raises what anybody found wrong."""
        self.world.look()
        for reader in self.readers:
            reader.look()

    async def rest(self) -> None:
        """Waits until nothing happens before somebody acts."""
        await self.world.rest(self.ledger.there())

    async def act(self, action: Awaitable[T]) -> T:
        """Does one thing."""
        self.ledger.tick()
        return await action

    # Requests.

    async def ask(self, named: Named, times: int = 1) -> None:
        """Sends a request."""
        await self._asked([named], times)

    async def ask_all(self, several: list[Named]) -> None:
        """Sends several requests at the same moment."""
        await self._asked(several, 1)

    async def _asked(self, several: list[Named], times: int) -> None:
        self.ledger.tick()
        for named in several:
            self.ledger.know(named)
        await asyncio.gather(*(self.crowd.ask(named, times) for named in several))

    async def stream(self, named: Named) -> None:
        """Sends a message and follows its turn in one call."""
        self.ledger.tick()
        self.ledger.know(named)
        await self.crowd.stream(named)

    async def ask_and_die(self, several: list[Named], acknowledged: int) -> None:
        """Kills the server when so many of the messages, which are sent at the same moment, are acknowledged."""
        self.ledger.tick()
        for named in several:
            self.ledger.know(named)
        self.counts["kills"] += 1
        asking = [asyncio.create_task(self.crowd.ask(named, dies=True)) for named in several]
        while sum(one.done() for one in asking) < acknowledged:
            await asyncio.wait([one for one in asking if not one.done()], return_when=asyncio.FIRST_COMPLETED)
        await self.world.kill(asking)
        await self._lost_connections()
        await self.world.serve()

    # Readers.

    async def watch(self, session_id: str, *, with_list: bool, deltas: bool) -> Reader:
        """Begins to watch a session. Where places get old, the first event is gone: it begins with the list."""
        reader = SessionReader(*self._of(session_id), facts=self.facts, deltas=deltas)
        self.readers.append(reader)
        if session_id in self.ledger.there():
            reader.begin(with_list=with_list or self._prunes)
        return reader

    async def watch_all(self) -> Reader:
        """Begins to watch all sessions."""
        reader = AllReader(*self._of(""), facts=self.facts)
        self.readers.append(reader)
        reader.begin(from_beginning=not self._prunes)
        return reader

    def _of(self, session_id: str) -> tuple[Any, ...]:
        name = f"reader {len(self.readers) + 1} of {session_id or 'all'}"
        return name, session_id, lambda: self.world.client, lambda: self.ledger.now

    async def lag(self, reader: Reader, lags: bool) -> None:
        """Lets a reader stop reading, or go on."""
        if lags and reader.is_open:
            reader.lag()
        else:
            reader.read_on()

    async def leave(self, reader: Reader) -> None:
        """Lets a reader go for good."""
        await reader.drop()
        reader.look()
        self.readers.remove(reader)

    async def come_back(self, reader: Reader, back: int | None, *, fails: bool = False) -> None:
        """Lets a reader leave and come back.

        Args:
            reader: The reader.
            back: Which of its places, counted from the newest; None where it was.
            fails: It is to be refused, rather than told to read anew.
        """
        await reader.drop()
        reader.look()
        if isinstance(reader, SessionReader):
            if reader.session_id not in self.ledger.there():
                return
            place = reader.last_place() if back is None else _place(reader, back)
            if place is None:
                reader.begin(with_list=True)
            else:
                reader.resume(place, self._expected(place, reader.session_id), fails=fails)
        elif isinstance(reader, AllReader):
            place = _place(reader, back or 0)
            if place is None:
                reader.begin(from_beginning=not self._prunes)
            else:
                reader.resume(place, self._expected(place, ""))

    def _expected(self, place: Place, session_id: str) -> Expected:
        """Returns whether the place is still there: it is of the past of every backup that was put back since."""
        resync: bool | None = False
        for at, backup in self._restores:
            if place.at > at or place.at < backup.at:
                continue
            told_more = place.head > backup.heads.get(session_id, 0)
            if session_id and told_more:
                return Expected(True, self._prunes)
            resync = None
        return Expected(resync, self._prunes)

    async def _leave_all(self) -> None:
        for reader in self.readers:
            await reader.drop()
            reader.look()

    async def _lost_connections(self) -> None:
        """Lets all readers notice that the server is gone."""
        await self._leave_all()
        await self.crowd.leave_streams()

    async def _all_come_back(self) -> None:
        for reader in self.readers:
            if reader.lags or not reader.is_open:
                await self.come_back(reader, None)

    # The server.

    async def restart(self, *, killed: bool) -> None:
        """Ends the server and starts it again. Who watched has to come back."""
        self.ledger.tick()
        self.counts["kills" if killed else "stops"] += 1
        await (self.world.kill() if killed else self.world.stop())
        await self._lost_connections()
        await self.world.serve()

    async def back_up(self) -> Backup:
        """Makes a backup."""
        at = self.ledger.tick()
        promises, told = self.ledger.promises(), self.facts.told()
        path = await self.world.back_up()
        heads = await self.world.heads(self.ledger.there())
        self.ledger.tick()
        return Backup(path, at, heads, promises, told, tuple(self._restores))

    async def restore(self, backup: Backup, *, killed: bool) -> None:
        """Puts a backup in the place of the database. What was promised after it is gone."""
        at = self.ledger.tick()
        self.counts["restores"] += 1
        await (self.world.kill() if killed else self.world.stop())
        await self._lost_connections()
        self.world.put_back(backup.path)
        self.ledger.go_back(backup.promises, backup.at)
        self.facts.go_back(backup.told)
        self._restores = [*backup.restores, (at, backup)]
        self.ledger.tick()
        await self.world.serve()

    # What must hold.

    async def settle(self) -> None:
        """Answers all that waits until every session is idle, and compares everything.

        Raises:
            AssertionError: something was lost, or never ends.
        """
        self.ledger.tick()
        self.world.answers.end()
        for _ in range(ROUNDS):
            await self.rest()
            if not await self._help():
                break
        else:
            raise AssertionError("there is always something to answer")
        await self._all_come_back()
        await self.crowd.streams_end()
        await self.crowd.check_promises()
        for reader in self.readers:
            if isinstance(reader, SessionReader) and reader.session_id in self.ledger.there():
                await reader.until_equal()
                self._check_lost(reader.held.ids(), reader.name)
        for session_id in self.ledger.there():
            await self.world.check_next_requests(session_id)
            messages = await messages_of(self.world.client, session_id)
            self._check_lost({message.message_id for message in messages}, session_id)
            self._check_names([message.request_id for message in messages if message.request_id], session_id)
            await self._check_line(session_id, messages)
        await self.look()
        self.counts["settled"] += 1

    async def _help(self) -> bool:
        """Answers one thing of each session that waits. Returns whether there was one."""
        helped = self.crowd.let_go()
        for session_id in self.ledger.there():
            self.ledger.tick()
            helped |= await self.crowd.answer_permission(session_id, 0, "once")
            helped |= await self.crowd.answer_question(session_id, 0)
            helped |= await self.crowd.answer_tool(session_id, 0, "alone")
        return helped

    def _check_lost(self, ids: set[str], where: str) -> None:
        back = ids & self.ledger.lost
        assert not back, f"{where} has {back} of a future that is gone"

    def _check_names(self, names: list[str], where: str) -> None:
        twice = {name for name in names if names.count(name) > 1}
        assert not twice, f"{where} has several messages of the requests {twice}"

    async def _check_line(self, session_id: str, messages: list[SessionMessage]) -> None:
        """Checks that a list is one line of the tree, and that each message counts its alternatives as they are."""
        line = [message.message_id for message in messages]
        assert [message.previous_message_id for message in messages] == ["", *line][: len(line)], session_id
        for question, answer in itertools.pairwise(messages):
            assert answer.answers_message_id != question.message_id or answer.turn_id == question.turn_id, answer
        for message in messages:
            asked = ListAlternativesRequest(session_id=session_id, message_id=message.message_id)
            listed = await self.world.client.turns.ListAlternatives(asked)
            ids = [one.message_id for one in listed.messages]
            numbers = (len(ids), ids.index(message.message_id)) if len(ids) > 1 else (0, 0)
            assert (message.alternative_count, message.alternative_index) == numbers, f"{message} among {ids}"
            assert listed.selected_message_id == message.message_id, listed
            assert {one.previous_message_id for one in listed.messages} == {message.previous_message_id}, listed


def _place(reader: Reader, back: int) -> Place | None:
    return reader.places[-1 - back % len(reader.places)] if reader.places else None
