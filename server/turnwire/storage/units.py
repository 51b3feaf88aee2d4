"""Commits as rows: what each one changes in the store.

A transaction applies units one after the other. Each knows its session and what it writes by their heads, which the
engine reads for all units together, and adds rows, which are written at the end with one statement for each table. A
rejected unit leaves nothing. What keys cannot express, such as moving the path of a conversation, is done by
statements; before each of them, all collected rows are written.
"""

import random
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime

import msgspec

from turnwire.domain.conversation.events import (
    ConversationChange,
    ConversationChanged,
    DurableKind,
    Event,
    MessageAdded,
    MessageFinished,
    MessageReplaced,
    QueueChanged,
    SessionUpdated,
    SessionView,
    TurnEnded,
    TurnStarted,
    TurnSteered,
)
from turnwire.domain.conversation.messages import Message, MessageStatus
from turnwire.domain.conversation.permissions import PermissionRequest
from turnwire.domain.conversation.questions import Question
from turnwire.domain.conversation.sessions import Session, begun, first_words_of
from turnwire.domain.conversation.turns import BusyPolicy, QueueEntry
from turnwire.domain.errors import IdTaken, RequestIdReused, SessionNotFound, StaleVersion, StorageError
from turnwire.domain.money import Consumption
from turnwire.domain.text import folded
from turnwire.ports.codec import Codec
from turnwire.ports.commit import (
    AddSpending,
    Change,
    Commit,
    Committed,
    HideMessages,
    JoinSession,
    MarkArchived,
    NewEvent,
    NoteFirstWords,
    OrderQueue,
    PublishSession,
    PutDraft,
    PutFile,
    PutMessage,
    PutPermission,
    PutQuestion,
    PutSession,
    PutTurn,
    RecordRequest,
    RemoveMessage,
    RemoveSession,
    RequireHead,
    RequireQueueRevision,
    RequireQuota,
    Rewound,
    SelectPath,
    SessionState,
    ShowMessages,
    UseUpload,
)
from turnwire.ports.store import StoredEvent, Watched
from turnwire.storage.accounts import Delta, Ledger
from turnwire.storage.rows import (
    KIND_NUMBERS,
    NOT_TAKEN_BACK,
    TAKEN_BACK_FOR_EVER,
    Known,
    MessageHead,
    RequestHead,
    Rows,
    SessionHead,
    TurnHead,
    counted,
    encode,
    facets_of,
    facts_of,
    has_ended,
    message_row,
    microseconds,
    moment,
    packed,
    settings_of,
    text,
    turn_body,
    turn_settings,
    usage_of,
)
from turnwire.storage.sql import states, tree, uploads
from turnwire.storage.sql.alternatives import alternatives
from turnwire.storage.sql.database import Database
from turnwire.storage.sql.engine import Queue, SqlEngine
from turnwire.storage.sql.words import change_index

PRUNE_SLACK = 64
"""The events over its limit that a session may have. Pruning one event at a time would write more than it frees."""

MAX_PRUNED = 96
"""The maximum number of events that are dropped at once: more than a commit usually adds, so that a session whose limit
was lowered reaches it, and few enough to cause no delay."""


class Spoiled(Exception):
    """The collected rows of an earlier unit could not be written, for the given cause; this unit is not at fault."""


class Transaction:
    """The units of one transaction. Used on the writer's thread.

    `rows` has what is to be written of the applied units, `own` of the unit being applied.
    """

    def __init__(self, engine: SqlEngine, next_number: Callable[[], int], next_position: int) -> None:
        """Takes the open transaction, and what makes numbers of rows and positions of events."""
        self.engine = engine
        self.next_number = next_number
        self.next_position = next_position
        self.ledger = Ledger()
        self.rows, self.own = Rows(), Rows()
        self.sessions = Known[SessionHead](engine.sessions)
        self.messages = Known[MessageHead](engine.messages)
        self.turns = Known[TurnHead](engine.turns)
        self.files = Known[int](engine.files)
        self.requests = Known[bool](engine.requests)
        self.permissions = Known[RequestHead](engine.permissions)
        self.questions = Known[RequestHead](engine.questions)
        self.queues = Known[Queue](engine.queues)
        self.policies = Known[BusyPolicy](engine.policies)
        self.totals = Known[tuple[int, int]](engine.totals)
        self._known: tuple[Known[object], ...] = (
            *(self.sessions, self.messages, self.turns),  # type: ignore[assignment]
            *(self.files, self.requests, self.permissions, self.questions, self.queues, self.policies, self.totals),
        )
        self._has_savepoint = False

    def fetch(self, commits: Iterable[Commit]) -> None:
        """Reads the heads that commits need, for all of them together."""
        commits = list(commits)
        changes = [change for commit in commits for change in commit.changes]
        self.sessions.fetch(commit.session_id for commit in commits)
        self.messages.fetch(
            one.message.message_id if isinstance(one, PutMessage) else one.draft.message.message_id
            for one in changes
            if isinstance(one, PutMessage | PutDraft)
        )
        self.turns.fetch(one.turn.turn_id for one in changes if isinstance(one, PutTurn))
        told = (one for one in commits if any(isinstance(new.kind, QueueChanged) for new in one.events))
        self.queues.fetch(head.id for one in told if (head := self.sessions.head(one.session_id)) is not None)
        self.policies.fetch(turn for queue in self.queues.values() for _, turn in queue or ())
        self.requests.fetch(
            (one.principal.tenant, one.principal.subject, one.request_id)
            for one in changes
            if isinstance(one, RecordRequest)
        )

    @property
    def size_bytes(self) -> int:
        """The approximate memory that the rows to be written take."""
        return self.rows.size_bytes

    def written(self) -> Database:
        """Writes all collected rows, so that statements find them. Returns the database."""
        if not self._has_savepoint:
            try:
                self.flush()
            except Exception as error:
                raise Spoiled from error
            self.engine.db.run("SAVEPOINT unit")
            self._has_savepoint = True
        own, self.own = self.own, Rows(words=self.own.words, size_bytes=self.own.size_bytes)
        self.engine.write(own)
        return self.engine.db

    def flush(self) -> None:
        """Writes the collected rows of the applied units except for their words."""
        rows, self.rows = self.rows, Rows(words=self.rows.words, size_bytes=self.rows.size_bytes)
        self.engine.write(rows)

    def finish(self) -> None:
        """Writes all that the units have collected. Called once, before the end of the transaction."""
        self.flush()
        change_index(self.engine.db, self.rows.words)

    def forget(self) -> None:
        """Forgets the heads after a statement has changed what is stored, so that they are read again."""
        self.engine.forget()
        for known in self._known:
            known.forget()

    def keep(self) -> None:
        """Keeps what a unit has changed."""
        if self._has_savepoint:
            self.engine.db.run("RELEASE unit")
            self._has_savepoint = False
        self.rows.take(self.own)
        self.own = Rows()
        for known in self._known:
            known.keep()

    def undo(self) -> None:
        """Rolls back what a unit has changed."""
        self.own = Rows()
        if self._has_savepoint:
            self.engine.db.run("ROLLBACK TO unit")
            self.engine.db.run("RELEASE unit")
            self._has_savepoint = False
            self.forget()
        for known in self._known:
            known.undo()


class CommitWriter:
    """Applies commits in transactions. Used on the writer's thread."""

    def __init__(self, codec: Codec, retained_events: int, is_watched: Watched = lambda *_: True) -> None:
        """Takes what makes frames, how many events a session keeps, and which sessions need frames at once."""
        self._is_watched = is_watched
        self._codec = codec
        self._retained_events = retained_events

    def apply(self, transaction: Transaction, commit: Commit) -> tuple[Committed, list[StoredEvent]]:
        """Applies one commit inside the open transaction.

        Raises:
            SessionNotFound: the tenant has no such session and the commit does not create it.
            IdTaken: something that the commit creates has an id of something else.
            QuotaExceeded: the tenant may not have as much.
            StaleVersion: the session's settings, or what a Require… names, were changed since they were read.
        """
        unit = _Unit(transaction, commit)
        before = unit.session.head_sequence
        for change in commit.changes:
            unit.carry_out(change)
        if unit.is_branched and commit.state is SessionState.LIVE:  # an import tells nobody how many there are
            unit.alternatives = alternatives(transaction.written(), unit.session.id, unit.previous)
        stored = unit.number_events(self._codec, self._is_watched)
        head = before + len(stored)
        self._end(unit, head)
        known = {message: other for message, other in unit.previous.items() if other}
        revision = unit.queue_revision
        return Committed(before, head, known, unit.rewound, unit.alternatives, revision), stored

    def _end(self, unit: "_Unit", head: int) -> None:
        """Writes what has changed of the session, and notes what has changed in its tenant's account."""
        session, commit, stored_bytes = unit.session, unit.commit, 0
        if all(isinstance(change, PutDraft) for change in commit.changes) and head == session.head_sequence:
            return  # a save of a message that streams: it counts in no account, and its end tells when it changed
        if session.state != SessionState.DELETING:
            if head - session.pruned_through > self._retained_events + PRUNE_SLACK:
                through = min(head - self._retained_events, session.pruned_through + MAX_PRUNED)
                unit.transaction.written()
                reached, size = unit.transaction.engine.prune(session.id, commit.session_id, through)
                unit.added_bytes -= size
                session = session._replace(pruned_through=max(session.pruned_through, reached))
            stored_bytes = session.stored_bytes + unit.added_bytes
            session = session._replace(head_sequence=head, stored_bytes=stored_bytes)
            unit.transaction.own.heads[session.id] = (
                head,
                microseconds(_updated_at(commit)),
                stored_bytes,
                session.branched_at,
                session.queue_revision,
                session.last_place,
                session.tip,
                session.id,
            )
            unit.transaction.sessions.head(commit.session_id)  # what a statement has let be forgotten
            unit.transaction.sessions.change(commit.session_id, session)
        sessions, counted_bytes = counted(session.state, stored_bytes)
        sessions_before, bytes_before = unit.counted_before
        delta = Delta(
            tenant=session.tenant,
            sessions=sessions - sessions_before,
            stored_bytes=counted_bytes - bytes_before + unit.file_bytes,
            spent=tuple(unit.spent),
        )
        if unit.quota is not None:
            _check_quota(unit, unit.quota, delta, stored_bytes)
        if any(delta[1:]):
            unit.transaction.ledger.deltas.append(delta)


def _check_quota(unit: "_Unit", quota: RequireQuota, delta: Delta, stored_bytes: int) -> None:
    """Raises QuotaExceeded. An imported session counts once it is published, and is rejected before that."""
    if unit.session.state == SessionState.IMPORTING:
        sessions = 0 if unit.session.joins else 1
        delta = delta._replace(sessions=sessions, stored_bytes=delta.stored_bytes + stored_bytes)
    unit.transaction.ledger.check(
        unit.transaction.totals.head(delta.tenant) or (0, 0),
        delta,
        max_sessions=quota.max_sessions,
        max_stored_bytes=quota.max_stored_bytes,
    )


def _updated_at(commit: Commit) -> datetime:
    """Returns the time of the last change of the session, which for an imported one may be before its import."""
    said = (one.updated_at for one in commit.changes if isinstance(one, PublishSession | JoinSession))
    return next(said, commit.at)


class _Unit:
    """One commit while it is applied: its session, and what is known of it so far."""

    def __init__(self, transaction: Transaction, commit: Commit) -> None:
        """Finds or begins the session. Raises SessionNotFound and IdTaken; see `CommitWriter.apply`."""
        self.transaction = transaction
        self.commit = commit
        self.added_bytes = 0
        """Bytes that the changes add to the stored size of the session."""
        self.file_bytes = 0
        """Size of the files that were added, less those that were removed."""
        self.spent: list[tuple[date, Consumption]] = []
        self.counted_before = (0, 0)
        """The session's part of its tenant's account before the commit: the numbers of sessions and bytes."""
        self.previous: dict[str, str] = {}
        """The message before each message that was written; "" when there is none, or while it is queued."""
        self.rewound: Rewound | None = None
        self.alternatives: dict[str, tuple[int, int]] = {}
        self.titles: dict[str, str] = {}
        """The title that the session is shown with because of a message, by its id."""
        self.marked: MarkArchived | None = None
        """The change that has set its mark to another value."""
        self.quota: RequireQuota | None = None
        """The quota of the tenant, if it is to be checked."""
        self.queue_revision = 0
        """The revision of the queue after its last change in the commit; 0 when it was not changed."""
        self.turn_starts: dict[str, int] = {}
        """The sequence at which each turn that was put started; 0 while it has not."""
        self.turns: dict[str, tuple[TurnHead, PutTurn]] = {}
        """The turns that are written with the numbers of their events."""
        self.session = self._found()

    @property
    def is_branched(self) -> bool:
        """Whether messages of the session may be off its path."""
        return self.session.branched_at > 0

    def carry_out(self, change: Change) -> None:
        """Carries out a change; see `ports.commit`."""
        match change:
            case PutMessage():
                self._put_message(change)
            case PutDraft():
                self._put_draft(change)
            case PutTurn():
                self._put_turn(change)
            case RecordRequest():
                self._record_request(change)
            case PutFile() | UseUpload():
                self._put_file(change)
            case AddSpending(spending):
                self.transaction.own.add_usage(*usage_of(spending))
                self.spent.append((spending.at.astimezone(UTC).date(), spending.consumption))
            case _:
                self._carry_out_rare(change)

    def _carry_out_rare(self, change: Change) -> None:
        match change:
            case PutSession(session):
                self._put_session(session)
            case NoteFirstWords():
                self._note_first_words(change)
            case MarkArchived():
                self._mark_archived(change)
            case PutPermission() | PutQuestion():
                self._put_asked(change)
            case RequireHead() | RequireQueueRevision() | RequireQuota():
                self._require(change)
            case OrderQueue(message_ids):
                self._order_queue(message_ids)
            case RemoveMessage(message_id):
                self._remove_message(message_id)
            case HideMessages() | ShowMessages() | SelectPath():
                self._change_path(change)
            case PublishSession() | JoinSession() | RemoveSession():
                self._change_state(change)

    def _written(self) -> Database:
        return self.transaction.written()

    def _put_head(self, **columns: object) -> None:
        self.session = self.session._replace(**columns)  # type: ignore[arg-type]

    # the session

    def _found(self) -> SessionHead:
        """Returns the session, which a commit may create."""
        commit, sessions = self.commit, self.transaction.sessions
        head = sessions.head(commit.session_id)
        new = next((one for one in commit.changes if isinstance(one, PutSession) and one.session.revision == 1), None)
        if new is not None and head is not None:  # whoever has it
            raise IdTaken.of("session", commit.session_id)
        if head is None:
            if new is None:
                raise SessionNotFound(commit.session_id)
            head = self._begun(new)
        else:
            self.counted_before = counted(head.state, head.stored_bytes)
        if head.tenant != commit.tenant or head.state != commit.state:
            raise SessionNotFound(commit.session_id)
        return head

    def _begun(self, new: PutSession) -> SessionHead:
        session, tenant, commit, state = new.session, new.session.tenant, self.commit, SessionState.LIVE
        last, kept_bytes, target = 0, 0, None
        if commit.state is not SessionState.LIVE:
            state = SessionState.IMPORTING
            last, kept_bytes, target = states.former(self._written(), tenant, commit.session_id, new.joins)
        archived_at_us = microseconds(session.archived_at) if session.archived_at else 0
        first_words = first_words_of(session)
        settings = settings_of(session, first_words)
        head = SessionHead(
            id=self.transaction.next_number(),
            tenant=tenant,
            state=state,
            joins=target,
            revision=1,
            body_bytes=settings.body_bytes,
            is_titled=settings.is_titled,
            first_words=first_words,
            archived_at_us=archived_at_us,
            pruned_through=max(last - 1, 0),
            head_sequence=last,
            stored_bytes=settings.body_bytes + kept_bytes,
            branched_at=0,
            queue_revision=0,
            last_place=0,
            tip="",
        )
        numbers = (head.head_sequence, head.pruned_through, head.stored_bytes)
        beside = (first_words, archived_at_us > 0, archived_at_us, microseconds(commit.at))
        row = (head.id, commit.session_id, tenant, state, target, *numbers, *beside, *settings)
        self.transaction.own.new_sessions[head.id] = row
        self.transaction.queues.change(head.id, ())
        self._put_facets(head.id, session)
        return head

    def _put_session(self, session: Session) -> None:
        head = self.session
        if session.revision == 1:  # begun with the commit
            return
        if head.revision != session.revision - 1:
            text = f"the session has revision {head.revision}"
            raise StaleVersion(text, {"currentRevision": str(head.revision)})
        settings = settings_of(session, head.first_words)
        self.added_bytes += settings.body_bytes - head.body_bytes
        self.transaction.own.settings[head.id] = (*settings, head.id)
        self._put_facets(head.id, session)
        self._put_head(revision=session.revision, body_bytes=settings.body_bytes, is_titled=settings.is_titled)

    def _put_facets(self, session_number: int, session: Session) -> None:
        facets = facets_of(session.directory, session.labels)
        self.transaction.own.facets[session_number] = [(session.tenant, one, session_number) for one in facets]

    def _note_first_words(self, change: NoteFirstWords) -> None:
        if self.session.first_words:
            return
        row = (change.first_words, folded(change.first_words), self.session.id)
        self.transaction.own.first_words[self.session.id] = row
        self._put_head(first_words=change.first_words)
        if not self.session.is_titled:
            self.titles[change.message_id] = change.first_words

    def _mark_archived(self, change: MarkArchived) -> None:
        if change.is_archived == bool(self.session.archived_at_us):
            if self.marked is not None:
                self.marked = change  # a later command of the commit knows more
            return
        at_us = microseconds(self.commit.at) if change.is_archived else 0
        self.marked = change
        self.transaction.own.archived[self.session.id] = (change.is_archived, at_us, self.session.id)
        self._put_head(archived_at_us=at_us)

    def _change_state(self, change: PublishSession | JoinSession | RemoveSession) -> None:
        db, head, transaction = self._written(), self.session, self.transaction
        if isinstance(change, RemoveSession):
            words, own = transaction.engine.words, transaction.own
            self.file_bytes -= states.remove(db, words, head, self.commit.session_id, own)
            self._put_head(state=SessionState.DELETING)
        elif isinstance(change, PublishSession):
            if head.state != SessionState.IMPORTING:
                raise StorageError(f"session {self.commit.session_id} is incomplete", {"id": self.commit.session_id})
            self.file_bytes -= states.publish(db, head.id, self.commit.session_id, change.messages)
            self._put_head(state=SessionState.LIVE)
        else:
            moved_bytes, file_bytes, is_branched = states.join(db, head.id, change)
            self.added_bytes += moved_bytes
            self.file_bytes -= file_bytes
            place, tip = tree.end_of_path(db, head.id)
            self._put_head(last_place=place, tip=tip)
            if is_branched:
                self._put_head(branched_at=max(head.branched_at, 1))
        transaction.forget()

    def _require(self, change: RequireHead | RequireQueueRevision | RequireQuota) -> None:
        """Raises StaleVersion unless the session, or its queue, has the expected revision. Notes a quota."""
        head, queue = self.session.head_sequence, self.session.queue_revision
        if isinstance(change, RequireQuota):
            self.quota = change
        elif isinstance(change, RequireQueueRevision):
            if change.revision != queue:
                raise StaleVersion(f"the queue has revision {queue}", {"currentRevision": str(queue)})
        elif change.sequence != head:
            raise StaleVersion("the session has changed meanwhile", {"headSequence": str(head)})

    def _record_request(self, change: RecordRequest) -> None:
        """Stores the answer to a request. Raises RequestIdReused: another server has stored one of that name."""
        caller = change.principal
        key = (caller.tenant, caller.subject, change.request_id)
        if self.transaction.requests.head(key):
            raise RequestIdReused.of("request_id", "was used for another request", requestId=change.request_id)
        before_sequence = self.session.head_sequence + change.events_before
        row = (*key, self.session.id, change.fingerprint, change.receipt_json, before_sequence)
        self.transaction.own.requests[key] = row
        self.transaction.requests.change(key, True)

    def _put_asked(self, change: PutPermission | PutQuestion) -> None:
        """Writes a permission request or a question. Raises IdTaken: another session has one of its id."""
        transaction, session = self.transaction, self.session
        value: PermissionRequest | Question
        further: tuple[str | None, ...] = ()
        if isinstance(change, PutPermission):
            kind, value, asked_id = "permission", change.permission, change.permission.permission_id
            known, rows = transaction.permissions, transaction.own.permissions
        else:
            kind, value, asked_id = "question", change.question, change.question.question_id
            known, rows = transaction.questions, transaction.own.questions
            further = (None if change.hold is None else text(change.hold),)
        head, body = known.head(asked_id), text(value)
        if head is not None and head.session != session.id:
            raise IdTaken.of(kind, asked_id)
        size = len(body.encode())
        number = transaction.next_number() if head is None else head.id
        self.added_bytes += size - (0 if head is None else head.size_bytes)
        rows[number] = (number, asked_id, session.id, session.tenant, value.answer is None, body, *further)
        known.change(asked_id, RequestHead(number, session.id, size))

    # files

    def _put_file(self, change: PutFile | UseUpload) -> None:
        """Stores bytes as a file, once for each tenant. The bytes of an upload then count as the file's."""
        tenant, transaction = self.session.tenant, self.transaction
        if isinstance(change, UseUpload):
            content = uploads.use(self._written(), tenant, change)
            self.file_bytes -= len(content)
        else:
            content = change.content
        key = (tenant, change.sha256)
        number = transaction.files.head(key)
        if number is None:
            number = transaction.next_number()
            transaction.own.files[number] = (number, tenant, change.sha256, content)
            transaction.own.size_bytes += len(content)
            transaction.files.change(key, number)
            self.file_bytes += len(content)
        if self.session.state == SessionState.IMPORTING:
            transaction.own.imported_files[self.session.id, number] = (self.session.id, number)

    # messages

    def _put_message(self, change: PutMessage) -> None:
        """Writes a message, and notes the message before it.

        Raises:
            IdTaken: the id is that of a message of another session.
            StorageError: a file is not stored.
        """
        message, messages = change.message, self.transaction.messages
        stored = messages.head(message.message_id)
        if stored is not None:
            if stored.session != self.session.id:
                raise IdTaken.of("message", message.message_id)
            if change.at_end:
                tree.leave_place(self._written(), self.session.id, message.message_id)
                self.transaction.forget()
            if self.is_branched and stored.turn_id != message.turn_id:
                tree.keep_turn(self._written(), self.session.id, message.message_id, message.turn_id)
                self.transaction.forget()
        head = self._placed(change, stored)
        self.previous[message.message_id] = head.previous
        head = self._beside_path(change, head)
        columns = message_row(message)
        self.added_bytes += columns.size_bytes - (0 if stored is None else stored.size_bytes)
        head = self._refer(message, head._replace(size_bytes=columns.size_bytes, turn_id=message.turn_id), stored)
        is_indexed = stored is not None and bool(stored.is_indexed)
        if is_indexed and (head.id in self.transaction.rows.messages or head.id in self.transaction.own.messages):
            self._written()  # the index is given what is stored
        engine, own = self.transaction.engine, self.transaction.own
        is_indexed = engine.index(own, self.session, head.id, message, is_indexed=is_indexed)
        version = random.getrandbits(62)  # numbers start again at each start of the server, versions may not
        position = (head.queued, head.place, version, head.on_path, head.taken_back)
        names = (message.turn_id, head.previous, head.branch_turn)
        own.put_message(head.id, (head.id, message.message_id, head.session, *position, *names, *columns), columns)
        messages.head(message.message_id)
        messages.change(message.message_id, head._replace(is_indexed=is_indexed, drafts=0))
        self._keep_queue(message, stored, moves=change.at_end)
        if self.is_branched and stored is not None and head.place != stored.place:
            db = self._written()
            tree.carry_branches(db, self.session.id, message.message_id)
            self.transaction.forget()
            self._put_head(last_place=tree.end_of_path(db, self.session.id)[0])

    def _placed(self, change: PutMessage, stored: MessageHead | None) -> MessageHead:
        """Returns the head of a message with its new position: as it is stored, or at the end of its session."""
        message, session = change.message, self.session
        queued = int(message.status is MessageStatus.QUEUED)
        if stored is not None and not change.at_end and queued == stored.queued:
            return stored
        place = session.last_place + 1
        if queued and stored is not None and session.tip == message.message_id:
            self._put_head(tip=stored.previous)  # it leaves the path and waits
        previous = "" if queued else session.tip
        if previous == message.message_id and stored is not None:
            previous = stored.previous
        self._put_head(last_place=place)
        if stored is not None:
            head = stored._replace(queued=queued, place=place, previous=previous)
        else:
            head = MessageHead(
                id=self.transaction.next_number(),
                session=session.id,
                queued=queued,
                place=place,
                on_path=1,
                taken_back=NOT_TAKEN_BACK,
                turn_id=message.turn_id,
                previous=previous,
                branch_turn=None,
                size_bytes=0,
                drafts=0,
                has_files=0,
                is_indexed=0,
                calls=0,
            )
        if head.on_path and not queued and not change.is_hidden and change.branch is None:
            self._put_head(tip=message.message_id)
        return head

    def _beside_path(self, change: PutMessage, head: MessageHead) -> MessageHead:
        """Returns the head of a message that may be stored as taken back or off the path."""
        if change.is_hidden:
            head = head._replace(on_path=0, taken_back=TAKEN_BACK_FOR_EVER)
        if change.branch is not None:
            branch = change.branch
            head = head._replace(on_path=0, previous=branch.previous_message_id, branch_turn=branch.turn_id)
            # the number of the first event stands for some earlier change of the path
            self._put_head(branched_at=max(self.session.branched_at, 1))
        return head

    def _refer(self, message: Message, head: MessageHead, stored: MessageHead | None) -> MessageHead:
        """Updates what is found by a message: its calls, its files, and its drafts, which are removed."""
        own, engine = self.transaction.own, self.transaction.engine
        calls = message.tool_calls()
        if len(calls) != head.calls:  # a message gets its calls once, and is put again for each of their results
            own.calls[head.id] = [(part.part_id, head.id, call.call_id) for part, call in calls]
        if calls:
            filed = frozenset[int]() if stored is None or not stored.calls else stored.open_calls
            if filed is None:
                filed = engine.open_calls(head.id)
            ready = {part.index: (part.part_id, call) for part, call in calls if call.awaits_client}
            wanted = {index: one for index, one in ready.items() if index in filed or one[1].started_at is not None}
            for index in filed - wanted.keys():
                own.open_calls[head.id, index] = None
            for index, (part_id, call) in wanted.items():
                if index not in filed and call.started_at is not None:
                    beside = (self.session.id, self.session.tenant, call.name, part_id, microseconds(call.started_at))
                    own.open_calls[head.id, index] = (head.id, index, *beside)
            head = head._replace(open_calls=frozenset(wanted))
        if stored is not None and stored.drafts:
            own.end_drafts(head.id)
        files = frozenset(self._file(sha256) for sha256 in {file.sha256 for file in message.all_files()})
        before = frozenset[int]() if stored is None or not stored.has_files else stored.files
        if before is None:
            before = frozenset(states.files_of(engine.db, [head.id]))
        own.message_files.update(((head.id, one), None) for one in before - files)
        own.message_files.update(((head.id, one), (head.id, one)) for one in files - before)
        if before - files:
            self.file_bytes -= states.remove_unused(self._written(), before - files)
            self.transaction.files.forget()
        return head._replace(calls=len(calls), files=files, has_files=bool(files))

    def _file(self, sha256: str) -> int:
        """Returns the number of a file of the session's tenant."""
        number = self.transaction.files.head((self.session.tenant, sha256))
        if number is None:
            raise StorageError(f"file {sha256} is not stored", {"sha256": sha256})
        return number

    def _keep_queue(self, message: Message, stored: MessageHead | None, *, moves: bool) -> None:
        """Updates what is known of the queue after a message was put."""
        queues, session = self.transaction.queues, self.session.id
        known = queues.get(session)
        queued = message.status is MessageStatus.QUEUED
        if known is None or not (queued or (stored is not None and stored.queued)):
            return
        entry = (message.message_id, message.turn_id)
        if queued and stored is not None and stored.queued and not moves:
            queues.change(session, tuple(entry if one[0] == entry[0] else one for one in known))
            return
        others = tuple(one for one in known if one[0] != entry[0])
        queues.change(session, (*others, entry) if queued else others)

    def _put_draft(self, change: PutDraft) -> None:
        """Adds a draft to a message. Raises StorageError when the session has no such message."""
        message_id = change.draft.message.message_id
        head = self.transaction.messages.head(message_id)
        if head is None or head.session != self.session.id:
            raise StorageError(f"message {message_id} is not stored", {"id": message_id})
        number = head.drafts + 1
        self.transaction.own.add_draft(head.id, (head.id, number, encode(change.draft)))
        self.transaction.messages.change(message_id, head._replace(drafts=number))

    def _remove_message(self, message_id: str) -> None:
        """Removes a message of the session, and the files that no other message uses."""
        head = self.transaction.messages.head(message_id)
        if head is None or head.session != self.session.id:
            return
        db, words = self._written(), self.transaction.engine.words
        self.file_bytes -= states.remove_messages(db, words, self.session, [head.id], self.transaction.own)
        self.added_bytes -= head.size_bytes
        self.transaction.forget()
        place, tip = tree.end_of_path(db, self.session.id)
        self._put_head(last_place=max(place, self.session.last_place), tip=tip)

    # the path

    def _change_path(self, change: HideMessages | ShowMessages | SelectPath) -> None:
        db, session, sequence = self._written(), self.session.id, self.session.head_sequence + 1
        turns: dict[str, str] = {}
        if isinstance(change, HideMessages):
            self.rewound = tree.take_back(db, session, change.from_message_id, sequence)
        elif isinstance(change, ShowMessages):
            self.rewound = tree.restore(db, session, self.commit.session_id)
        else:
            self.rewound, turns = tree.select_path(db, session, change)
            if self.rewound.messages:
                self._put_head(branched_at=sequence)
        self.transaction.forget()
        self._put_head(tip=tree.end_of_path(db, session)[1])
        for message_id, turn_id in turns.items():
            self._written()
            message = self.transaction.engine.message(message_id)
            self._put_message(PutMessage(msgspec.structs.replace(message, turn_id=turn_id)))

    # turns

    def _put_turn(self, change: PutTurn) -> None:
        """Takes a turn, which is written once its events have numbers. Raises IdTaken: another session has it."""
        turn = change.turn
        if turn.turn_id in self.turns:
            self._write_turns()
        head = self.transaction.turns.head(turn.turn_id)
        if head is None:
            first = self.session.head_sequence + 1
            head = TurnHead(self.transaction.next_number(), self.session.id, 0, 0, first, 0, 0)
        if head.session != self.session.id:
            raise IdTaken.of("turn", turn.turn_id)
        self.turns[turn.turn_id] = head, change
        self.turn_starts[turn.turn_id] = head.start_sequence
        self.transaction.policies.change(turn.turn_id, turn.busy_policy)

    def _write_turns(self) -> None:
        """Adds the turns that were taken to the rows."""
        transaction = self.transaction
        for turn_id, (stored, change) in self.turns.items():
            head = stored
            body, ended = turn_body(change.turn), has_ended(change.turn)
            known = transaction.own.turns.get(head.id) or transaction.rows.turns.get(head.id)
            settings, settings_bytes = turn_settings(change.turn), head.settings_bytes
            if change.keeps_settings and known is not None:
                settings = known[5]
            elif not change.keeps_settings or transaction.turns.head(turn_id) is None:
                settings_bytes = len((settings or "").encode())
            body_bytes = len(body.encode())
            self.added_bytes += body_bytes + settings_bytes - head.body_bytes - head.settings_bytes
            numbers = (head.start_sequence, head.end_sequence)
            if change.keeps_settings and known is None and transaction.turns.head(turn_id) is not None:
                transaction.own.turn_headers[head.id] = (ended, body, *numbers, head.id)
            else:
                row = (head.id, turn_id, head.session, ended, body, settings, *numbers, head.first_sequence)
                transaction.own.put_turn(head.id, row)
            head = head._replace(body_bytes=body_bytes, settings_bytes=settings_bytes)
            transaction.turns.change(turn_id, head)
        self.turns.clear()

    def _note_turn(self, turn_id: str, *, start: int = 0, end: int = 0) -> None:
        """Stores in a turn the sequence of the event that starts or ends it."""
        if start:
            self.turn_starts[turn_id] = start
        if turn_id not in self.turns:
            self._written()
            self.transaction.engine.note_turn(turn_id, start=start, end=end)
            self.transaction.turns.forget()
            return
        head, change = self.turns[turn_id]
        head = head._replace(start_sequence=start or head.start_sequence, end_sequence=end or head.end_sequence)
        self.turns[turn_id] = head, change

    # the queue

    def _order_queue(self, message_ids: Iterable[str]) -> None:
        tree.order_queue(self._written(), self.session.id, message_ids)
        self.transaction.forget()

    def _queue_changed(self, known: Iterable[QueueEntry]) -> QueueChanged:
        """Counts a change of the queue, and returns its event. The policies of known entries are not read."""
        revision = self.session.queue_revision + 1
        self._put_head(queue_revision=revision)
        self.queue_revision = revision
        queues, session = self.transaction.queues, self.session.id
        waiting = queues.get(session)
        if waiting is None:
            self._written()
            waiting = self.transaction.engine.queues([session]).get(session, ())
            queues.head(session)
            queues.change(session, waiting)
        policies, stored = {entry.turn_id: entry.policy for entry in known}, self.transaction.policies
        stored.fetch(turn for _, turn in waiting if turn not in policies)
        entries = (
            QueueEntry(message, turn, policies.get(turn) or stored.get(turn) or BusyPolicy.QUEUE)
            for message, turn in waiting
        )
        return QueueChanged(tuple(entries), revision)

    # events

    def number_events(self, codec: Codec, is_watched: Watched) -> list[StoredEvent]:
        """Returns the events of the commit after its changes, and adds their rows and those of its turns.

        Frames for watchers are made here, on the writer's thread, because an event may have many megabytes. Without
        watchers, none are made; for a watcher that begins now, the feed encodes what is published next.
        """
        commit, tenant, transaction = self.commit, self.session.tenant, self.transaction
        watched = bool(commit.events) and is_watched(tenant, commit.session_id)
        stored = list[StoredEvent]()
        at_us = microseconds(commit.at)
        events = (*self._events(), *self._mark_events())
        first = self.session.head_sequence + 1
        for sequence, new in enumerate(events, first):
            if isinstance(new.kind, TurnStarted):
                self._note_turn(new.kind.turn.turn_id, start=sequence)
            elif isinstance(new.kind, TurnEnded):
                self._note_turn(new.kind.turn.turn_id, end=sequence)
        self._write_turns()
        for sequence, new in enumerate(events, first):
            event = Event(
                session_id=commit.session_id,
                kind=self._completed(self._numbered(new.kind, sequence)),
                at=commit.at,
                turn_id=new.turn_id,
                sequence=sequence,
                position=transaction.next_position,
            )
            transaction.next_position += 1
            frame = codec.encode_event(event) if watched else None
            stored.append(StoredEvent(event, frame, tenant))
            kept = facts_of(event.kind)  # type: ignore[arg-type]  # a durable one
            self.added_bytes += len(kept.facts)
            transaction.own.size_bytes += len(kept.facts) + len(frame or b"")
            turn, message = packed("trn", new.turn_id), packed("msg", kept.message_id)
            row = (event.position, commit.session_id, sequence, at_us, turn, KIND_NUMBERS[kept.kind], message)
            transaction.own.events.append((*row, kept.facts, tenant))
        return stored

    def _events(self) -> Iterator[NewEvent]:
        """Yields the events of the commit, adds those that the path needs, and leaves out those of changes that did not
        occur.

        A message that waited joins the path without another event; when it has alternatives, an event after it reports
        them.
        """
        seen = set[str]()
        for new in self.commit.events:
            kind = new.kind
            if isinstance(kind, ConversationChanged) and self._is_same_path(kind):
                continue
            yield new
            if isinstance(kind, MessageAdded | MessageReplaced):
                seen.add(kind.message.message_id)
            joined = kind.turn.user_message_id if isinstance(kind, TurnStarted) else ""
            joined = kind.user_message_id if isinstance(kind, TurnSteered) else joined
            if joined in self.alternatives and joined not in seen:
                changes = (one.message for one in self.commit.changes if isinstance(one, PutMessage))
                yield from (NewEvent(MessageReplaced(one), new.turn_id) for one in changes if one.message_id == joined)

    def _mark_events(self) -> tuple[NewEvent, ...]:
        """Returns the event of a changed mark, which follows the other events of the commit."""
        change = self.marked
        if change is None:
            return ()
        self._written()
        session = msgspec.structs.replace(self.transaction.engine.session(self.session.id), updated_at=self.commit.at)
        view = SessionView(session, change.active_turn_id, change.queue, change.open_requests)
        return (NewEvent(SessionUpdated(view)),)

    def _is_same_path(self, kind: ConversationChanged) -> bool:
        selected = kind.change is ConversationChange.ALTERNATIVE_SELECTED
        return selected and self.rewound is not None and not self.rewound.messages

    def _numbered(self, kind: DurableKind, sequence: int) -> DurableKind:
        """Returns the kind of an event with the numbers that are only known here."""
        match kind:
            case TurnStarted(turn):
                return TurnStarted(msgspec.structs.replace(turn, start_sequence=sequence))
            case TurnEnded(turn):
                start = self.turn_starts.get(turn.turn_id, 0)
                return TurnEnded(msgspec.structs.replace(turn, start_sequence=start, end_sequence=sequence))
            case SessionUpdated(view):
                return SessionUpdated(self._as_stored(view))
            case QueueChanged(known):
                return self._queue_changed(known)
            case _:
                return kind

    def _completed(self, kind: DurableKind) -> DurableKind:
        """Returns an event's kind with the message before the one that it carries, or the last that it keeps."""
        if isinstance(kind, ConversationChanged) and self.rewound is not None:
            kept, reread = self.rewound.kept_through_message_id, kind.reread or self.rewound.joined > 0
            return msgspec.structs.replace(kind, kept_through_message_id=kept, reread=reread)
        if not isinstance(kind, MessageAdded | MessageFinished | MessageReplaced):
            return kind
        before_it = self.previous.get(kind.message.message_id, kind.message.previous_message_id)
        count, index = self.alternatives.get(kind.message.message_id, (0, 0))
        message = msgspec.structs.replace(
            kind.message, previous_message_id=before_it, alternative_count=count, alternative_index=index
        )
        if isinstance(kind, MessageAdded):
            return MessageAdded(message, self.titles.get(message.message_id, ""))
        return type(kind)(message)

    def _as_stored(self, view: SessionView) -> SessionView:
        """Returns a view with the mark and first words as they are now; messages may have changed both."""
        at_us = self.session.archived_at_us
        session = msgspec.structs.replace(view.session, archived_at=moment(at_us) if at_us else None)
        return msgspec.structs.replace(view, session=begun(session, self.session.first_words))
