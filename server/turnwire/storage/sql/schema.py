"""The tables of the store, for both engines, in the words of SQLite.

INT is a flag. Each engine adds indexes of its own and the index of words: see `MIGRATIONS` in the `schema` of each. A
released schema is never edited: a change is a further element there.
"""

from turnwire.domain.errors import StorageError

MARK = "unfinished_move"
"""A table that marks a database to which another one is being moved; dropped in the commit that stores all rows. As
long as it exists, no server serves the database."""


class Unfinished(StorageError):
    """A database has the mark."""

    def __init__(self) -> None:
        """Tells the operator what to do."""
        super().__init__("a move to this database has not ended, so it is not complete: `turnwire move` to it again")


TABLES = """
CREATE TABLE sessions (
    id               INTEGER PRIMARY KEY,
    session_id       TEXT NOT NULL UNIQUE,
    -- the owner
    tenant           TEXT NOT NULL,
    -- importing: it is being stored in parts. deleting: its rows are being removed in steps. Both exist for no reader;
    -- see storage/sql/states.py and removal.py
    state            TEXT NOT NULL DEFAULT 'live' CHECK (state IN ('importing', 'live', 'deleting')),
    -- the session that an importing one is to join, or NULL
    joins            INTEGER,
    body             TEXT NOT NULL CHECK (json_valid(body)),
    body_bytes       INTEGER NOT NULL,
    -- of the settings, as the body has it
    revision         INTEGER NOT NULL,
    is_titled        INT NOT NULL,
    -- of the first message that had any: the title while the body has none
    first_words      TEXT NOT NULL DEFAULT '',
    head_sequence    INTEGER NOT NULL DEFAULT 0,
    pruned_through   INTEGER NOT NULL DEFAULT 0,
    -- the newest position that the session lost: a watch of all sessions reads it anew, and no other
    pruned_position  INTEGER NOT NULL DEFAULT 0,
    updated_at_us    INTEGER NOT NULL,
    -- how often the queue changed
    queue_revision   INTEGER NOT NULL DEFAULT 0,
    -- bytes of its settings, turns, messages, permission requests, questions and events, as the writer counts them. The
    -- bytes of a tenant's files are the lengths of files.content
    stored_bytes     INTEGER NOT NULL DEFAULT 0,
    -- the sequence of the last change of the path; 0: it never changed, and no message has alternatives
    branched_at      INTEGER NOT NULL DEFAULT 0,
    -- no message has a higher place; tip: the last one on the path, '' for none
    last_place       INTEGER NOT NULL DEFAULT 0,
    tip              TEXT NOT NULL DEFAULT '',
    -- archived: 1 when it is archived. archived_at_us: since when, in microseconds since 1970; else 0. created_at_us
    -- repeats what the body says, and title_key, which has no upper case, the shown title: lists are ordered by them
    archived         INT NOT NULL DEFAULT 0,
    archived_at_us   INTEGER NOT NULL DEFAULT 0,
    created_at_us    INTEGER NOT NULL DEFAULT 0,
    title_key        TEXT NOT NULL DEFAULT ''
) STRICT;
-- by which one session is found: looking for that of another tenant reads no more than looking for an unknown one
CREATE UNIQUE INDEX sessions_of_tenants ON sessions (tenant, session_id) WHERE state = 'live';
-- with the state, so that a list reads nothing but its index
CREATE INDEX sessions_by_update ON sessions (tenant, archived, updated_at_us, session_id, state) WHERE state = 'live';
CREATE INDEX sessions_by_creation ON sessions (tenant, archived, created_at_us, session_id, state) WHERE state = 'live';
CREATE INDEX sessions_pruned ON sessions (tenant, pruned_position) WHERE state = 'live' AND pruned_position > 0;
CREATE INDEX sessions_not_live ON sessions (state) WHERE state <> 'live';

-- start_sequence, end_sequence: between which events it ran. first_sequence: its first event of all, kept while it runs
-- body: without turn_id, without what its session says, and without its tools and system prompt: settings has these, as
-- they never change and may be a megabyte; NULL for none
CREATE TABLE turns (
    id              INTEGER PRIMARY KEY,
    turn_id         TEXT NOT NULL UNIQUE,
    session         INTEGER NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    ended           INT NOT NULL,
    body            TEXT NOT NULL CHECK (json_valid(body)),
    settings        TEXT,
    start_sequence  INTEGER NOT NULL DEFAULT 0,
    end_sequence    INTEGER NOT NULL DEFAULT 0,
    first_sequence  INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX turns_by_session ON turns (session);
CREATE INDEX turns_unfinished ON turns (id) WHERE ended = 0;

CREATE TABLE messages (
    id               INTEGER PRIMARY KEY,
    message_id       TEXT NOT NULL UNIQUE,
    session          INTEGER NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    queued           INT NOT NULL,
    -- the order in the session; a queued message gets a new place when its turn starts
    place            INTEGER NOT NULL,
    -- another number with each change: what was made of a message is found by row and version
    version          INTEGER NOT NULL,
    -- 1: it is part of the conversation, or waits. taken_back: whether and when it was; see storage/sql/tree.py
    on_path          INT NOT NULL DEFAULT 1,
    taken_back       INTEGER NOT NULL,
    turn_id          TEXT NOT NULL,
    -- the message before this one in its conversation; '' for the first one and for queued ones
    previous         TEXT NOT NULL,
    -- off the path: the turn of the message before it when the path led on to this one; NULL: as it has it now
    branch_turn      TEXT,
    -- when it was created, and changed last if that was later, as MessagePack
    times            BLOB NOT NULL,
    -- of the request that an answer answers, with digests as bytes; NULL for none
    sent_context     BLOB,
    -- the message without its parts, and without what the columns above and its session say
    body             TEXT NOT NULL CHECK (json_valid(body)),
    -- its parts as MessagePack, without what only their providers understand, which is much and which no list reads:
    -- that stands behind them, as pairs of the index of a part and its state; NULL for none
    parts            BLOB NOT NULL,
    provider_states  BLOB
) STRICT;
CREATE INDEX messages_by_turn ON messages (turn_id) WHERE turn_id <> '';
-- messages off the path that can be chosen; the number is NOT_TAKEN_BACK in storage/rows.py
CREATE INDEX messages_off_path ON messages (session, previous, place) WHERE on_path = 0 AND taken_back = 1099511627776;

-- events that took messages back, the newest to be restored first. first: the first of these messages that was on the
-- path; '' for none
CREATE TABLE undos (
    session   INTEGER NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    sequence  INTEGER NOT NULL,
    first     TEXT NOT NULL,
    PRIMARY KEY (session, sequence)
) STRICT;

-- equal bytes of two tenants are two files, so that neither notices the other's
CREATE TABLE files (
    id       INTEGER PRIMARY KEY,
    tenant   TEXT NOT NULL,
    sha256   TEXT NOT NULL,
    content  BLOB NOT NULL,
    UNIQUE (tenant, sha256)
) STRICT;

-- the files that a message refers to, in its parts and in the results of its calls
CREATE TABLE message_files (
    message  INTEGER NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
    file     INTEGER NOT NULL REFERENCES files (id),
    PRIMARY KEY (message, file)
) STRICT, WITHOUT ROWID;
CREATE INDEX message_files_by_file ON message_files (file);

-- what a message that streams got since it was put; see domain/conversation/messages.py. n: their order
CREATE TABLE drafts (
    message  INTEGER NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
    n        INTEGER NOT NULL,
    body     BLOB NOT NULL,
    PRIMARY KEY (message, n)
) STRICT, WITHOUT ROWID;

-- files of a session that is being imported: they came before the messages that name them
CREATE TABLE imported_files (
    session  INTEGER NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    file     INTEGER NOT NULL REFERENCES files (id),
    PRIMARY KEY (session, file)
) STRICT, WITHOUT ROWID;
CREATE INDEX imported_files_by_file ON imported_files (file);

-- by what the message of a call is found: the id of its part, and the provider's id of the call
CREATE TABLE tool_calls (
    tool_call_id  TEXT NOT NULL,
    message       INTEGER NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
    call_id       TEXT NOT NULL,
    PRIMARY KEY (tool_call_id, message)
) STRICT, WITHOUT ROWID;

-- calls that a client may run now; tool_call_id, part_index and tool as in the part, since_us: when it became ready
CREATE TABLE open_calls (
    message       INTEGER NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
    part_index    INTEGER NOT NULL,
    session       INTEGER NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    tenant        TEXT NOT NULL,
    tool          TEXT NOT NULL,
    tool_call_id  TEXT NOT NULL,
    since_us      INTEGER NOT NULL,
    PRIMARY KEY (message, part_index)
) STRICT, WITHOUT ROWID;
CREATE INDEX open_calls_of_tenants ON open_calls (tenant, since_us, tool_call_id);
CREATE INDEX open_calls_of_sessions ON open_calls (session, since_us, tool_call_id);

CREATE TABLE permissions (
    id             INTEGER PRIMARY KEY,
    permission_id  TEXT NOT NULL UNIQUE,
    session        INTEGER NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    tenant         TEXT NOT NULL,
    open           INT NOT NULL,
    body           TEXT NOT NULL CHECK (json_valid(body))
) STRICT;
CREATE INDEX permissions_by_session ON permissions (session);
CREATE INDEX permissions_open ON permissions (tenant, id) WHERE open = 1;

-- what tool calls ask. hold: what a call needs to go on after its questions, with what was filled in; NULL as soon as
-- the call goes on or ends, and for a call that cannot go on in another process
CREATE TABLE questions (
    id           INTEGER PRIMARY KEY,
    question_id  TEXT NOT NULL UNIQUE,
    session      INTEGER NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    tenant       TEXT NOT NULL,
    open         INT NOT NULL,
    body         TEXT NOT NULL,
    hold         TEXT
) STRICT;
CREATE INDEX questions_by_session ON questions (session, open, id);
CREATE INDEX questions_open ON questions (tenant, id) WHERE open = 1;
CREATE INDEX questions_held ON questions (session, id) WHERE hold IS NOT NULL;

-- what happened; see storage/rows.py
-- no reference to sessions: the last event of a deleted session stays, for those who watch all sessions
CREATE TABLE events (
    position    INTEGER PRIMARY KEY,
    session_id  TEXT NOT NULL,
    sequence    INTEGER NOT NULL,
    at_us       INTEGER NOT NULL,
    -- ids of ours without prefix, as 16 bytes; others as text. kind: KIND_NUMBERS in storage/rows.py
    turn_id     ANY NOT NULL,
    kind        INTEGER NOT NULL,
    -- the message whose row says the rest; '' when none does. facts: what no other row says, as JSON
    message_id  ANY NOT NULL,
    facts       BLOB NOT NULL,
    tenant      TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX events_in_order ON events (session_id, sequence);

-- pruned_through: no event is left up to this position. newest_dropped: the newest one that was dropped by its age;
-- older ones may be kept for a turn, and no position is given twice. token_key: seals the resume tokens of this
-- database; see storage/sql/timelines.py. Made at the first start
CREATE TABLE log_state (
    id              INTEGER PRIMARY KEY CHECK (id = 1),
    pruned_through  INTEGER NOT NULL,
    newest_dropped  INTEGER NOT NULL,
    token_key       BLOB NOT NULL
) STRICT;
INSERT INTO log_state VALUES (1, 0, 0, x'');

-- one row for each start of the server; see storage/sql/timelines.py
CREATE TABLE timelines (
    id              INTEGER PRIMARY KEY,
    timeline        TEXT NOT NULL UNIQUE,
    start_position  INTEGER NOT NULL
) STRICT;

CREATE TABLE requests (
    tenant           TEXT NOT NULL,
    subject          TEXT NOT NULL,
    request_id       TEXT NOT NULL,
    session          INTEGER NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    fingerprint      TEXT NOT NULL,
    receipt          TEXT NOT NULL CHECK (json_valid(receipt)),
    before_sequence  INTEGER NOT NULL,
    PRIMARY KEY (tenant, subject, request_id)
) STRICT;
CREATE INDEX requests_by_session ON requests (session);

-- what each tenant has, so that a start need not read all that it has: live sessions, and all files
CREATE TABLE tenant_totals (
    tenant        TEXT PRIMARY KEY,
    sessions      INTEGER NOT NULL,
    stored_bytes  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- what model calls have used, by quarter of an hour since 1970; stays when the session is removed. NULL: nothing known
CREATE TABLE usage (
    tenant               TEXT NOT NULL,
    quarter              INTEGER NOT NULL,
    session_id           TEXT NOT NULL,
    subject              TEXT NOT NULL,
    provider_id          TEXT NOT NULL,
    model_id             TEXT NOT NULL,
    input_tokens         INTEGER,
    cache_read_tokens    INTEGER,
    cache_write_tokens   INTEGER,
    output_tokens        INTEGER,
    reasoning_tokens     INTEGER,
    shown_output_tokens  INTEGER,
    cost_pico_usd        INTEGER,
    steps                INTEGER NOT NULL,
    steps_without_price  INTEGER NOT NULL,
    turns                INTEGER NOT NULL,
    estimated_steps      INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, quarter, session_id, subject, provider_id, model_id)
) STRICT, WITHOUT ROWID;

-- what each tenant has used on the newest days (UTC, counted since 1970), as it counts towards quotas
CREATE TABLE usage_days (
    tenant         TEXT NOT NULL,
    day            INTEGER NOT NULL,
    tokens         INTEGER NOT NULL,
    cost_pico_usd  INTEGER NOT NULL,
    PRIMARY KEY (tenant, day)
) STRICT, WITHOUT ROWID;

-- bytes that a client sends in pieces. size_bytes: as announced, 0 when it was not; sealed: 1 once the last bytes came;
-- sha256: '' until the upload is complete; removed: 1 while its blocks are being removed, a few at a time.
-- request_id to receipt: of the named request that made it, as in requests
CREATE TABLE uploads (
    id              INTEGER PRIMARY KEY,
    tenant          TEXT NOT NULL,
    upload_id       TEXT NOT NULL,
    subject         TEXT NOT NULL,
    mime            TEXT NOT NULL,
    filename        TEXT NOT NULL,
    size_bytes      INTEGER NOT NULL,
    received_bytes  INTEGER NOT NULL DEFAULT 0,
    sealed          INT NOT NULL DEFAULT 0,
    sha256          TEXT NOT NULL DEFAULT '',
    created_at_us   INTEGER NOT NULL,
    expires_at_us   INTEGER NOT NULL,
    removed         INT NOT NULL DEFAULT 0,
    request_id      TEXT NOT NULL DEFAULT '',
    fingerprint     TEXT NOT NULL DEFAULT '',
    receipt         TEXT NOT NULL DEFAULT '',
    UNIQUE (tenant, upload_id)
) STRICT;
CREATE UNIQUE INDEX uploads_by_request ON uploads (tenant, subject, request_id) WHERE request_id <> '';
-- what a tenant has; those that are being removed may be many, and are not read
CREATE INDEX uploads_of_tenants ON uploads (tenant) WHERE removed = 0;
CREATE INDEX uploads_by_expiry ON uploads (expires_at_us) WHERE removed = 0;
CREATE INDEX uploads_removed ON uploads (id) WHERE removed = 1;
CREATE INDEX uploads_removed_of_tenants ON uploads (tenant, received_bytes) WHERE removed = 1;

-- number counts from 0. All blocks of an upload but the last have the same size; see storage/sql/uploads.py
CREATE TABLE upload_blocks (
    id      INTEGER PRIMARY KEY,
    upload  INTEGER NOT NULL REFERENCES uploads (id),
    number  INTEGER NOT NULL,
    bytes   BLOB NOT NULL,
    UNIQUE (upload, number)
) STRICT;

-- one for each part that is found. id: the second of its message, and a number in it. words: how many it has.
-- excerpt: what of a large part is searched; NULL when the part says it
CREATE TABLE search_entries (
    id          INTEGER PRIMARY KEY,
    message     INTEGER NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
    part_index  INTEGER NOT NULL,
    at_us       INTEGER NOT NULL,
    words       INTEGER NOT NULL,
    excerpt     TEXT
) STRICT;
CREATE UNIQUE INDEX search_entries_of_messages ON search_entries (message, part_index);

-- version: which words the index has; another one makes it anew. below: messages with lower ids are still to be indexed
CREATE TABLE search_state (
    id       INTEGER PRIMARY KEY CHECK (id = 1),
    version  TEXT NOT NULL,
    below    INTEGER NOT NULL
) STRICT;
INSERT INTO search_state VALUES (1, '', 0);
"""

TOKENS = """
CREATE TABLE tokens (
    token_id         TEXT PRIMARY KEY,
    token_hash       BLOB NOT NULL UNIQUE,
    tenant           TEXT NOT NULL,
    subject          TEXT NOT NULL,
    role             TEXT NOT NULL,
    created_at_ms    INTEGER NOT NULL,
    expires_at_ms    INTEGER,
    last_used_at_ms  INTEGER,
    revoked_at_ms    INTEGER
) STRICT, WITHOUT ROWID;
"""
"""The tokens of callers, which SQLite has in a file of their own."""
