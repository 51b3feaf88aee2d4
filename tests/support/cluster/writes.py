"""Notes of a database of several nodes about who has stored what, made by triggers: whatever the nodes believe."""

from tests.support.cluster.databases import Pair
from tests.support.cluster.guarantees import Write
from turnwire.storage.postgres.nodes import SHARD

_TABLE = """
CREATE SCHEMA audit;
CREATE TABLE audit.writes (session_id text, sequence bigint, writer text, is_owner bool);
"""

_TRIGGER = f"""
CREATE FUNCTION audit.note_{{table}}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO audit.writes
    SELECT session_id, {{sequence}}, pg_backend_pid(), shard IN (
        SELECT objid::int FROM pg_locks
        WHERE pid = pg_backend_pid() AND granted AND classid::bigint = {SHARD} AND objsubid = 2)
    FROM written JOIN {{sessions}};
    RETURN NULL;
END $$;
CREATE TRIGGER note AFTER INSERT ON {{table}} REFERENCING NEW TABLE AS written
    FOR EACH STATEMENT EXECUTE FUNCTION audit.note_{{table}}();
"""


def note_writes(databases: Pair) -> None:
    """Has each stored event and each saved text noted from now on, in its transaction. The tables have to be there."""
    databases.execute(_TABLE)
    databases.execute(_TRIGGER.format(table="events", sequence="sequence", sessions="sessions USING (session_id)"))
    of_messages = "messages ON messages.id = message JOIN sessions ON sessions.id = session"
    databases.execute(_TRIGGER.format(table="drafts", sequence="0", sessions=of_messages))


def writes_of(databases: Pair, session_id: str) -> list[Write]:
    """Returns what was noted for a session."""
    query = f"SELECT sequence, writer, is_owner FROM audit.writes WHERE session_id = '{session_id}'"
    return [Write(*row) for row in databases.execute(query)]
