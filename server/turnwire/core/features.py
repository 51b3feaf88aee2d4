"""The features of this server, as words for client programs."""

from collections.abc import Mapping

FEATURES: Mapping[str, str] = {
    "agents": "`agent` chooses named settings, which `ListAgents` lists",
    "answers.format": "`response_format` requests JSON, also by a schema",
    "budgets": "a turn ends when its tokens or money, or those of its session, are used up",
    "compaction": "older messages are summarised when the context would not fit",
    "explain": "`ExplainContext` shows the request that a model would get",
    "files.download": "`DownloadFile` reads the files of messages and results",
    "labels": "a session keeps labels and facts (`metadata_json`) of its client",
    "messages.alternatives": "`RegenerateMessage` answers a message again, `SelectAlternative` chooses between answers",
    "messages.append": "`AppendMessage` stores messages without a turn",
    "messages.append.answers": "`AppendMessage` accepts answers of models that the caller called itself",
    "permissions": "tool calls may require a person's permission",
    "questions": "tools of the server ask a person while they run",
    "queue": "messages wait while a turn runs",
    "queue.edit": "`ListQueue` shows waiting messages, which can be edited, moved and removed",
    "queue.expected": "`expected_turn_id` acts only on the turn that the user saw",
    "queue.interrupt": "`BUSY_POLICY_INTERRUPT` ends the running turn; the message is answered next",
    "queue.steer": "`BUSY_POLICY_STEER` lets a message join the running turn",
    "quotas": "a tenant has limits, which `ListQuotas` shows",
    "requests.named": "`request_id` makes a retry safe",
    "search": "`SearchMessages` finds messages by their words",
    "sessions.archive": "`ArchiveSession` puts a session away, `UnarchiveSession` and a new message bring it back",
    "sessions.fork": "`ForkSession` copies a session, or its beginning",
    "sessions.list": "`ListSessions` filters by archive, directory, labels, update time and title, and has orders",
    "sessions.rewind": "`ClearSession` and `RevertSession` hide messages, `RestoreSession` brings them back",
    "sessions.settings": "`UpdateSession` sets and unsets each setting of a session by a mask",
    "tools.choice": "`tool_choice` requires a call, forbids calls, or requires a call of one tool",
    "tools.client": "clients declare tools and run them",
    "tools.leases": "`ClaimToolCall` keeps other clients from running a call; `ListOpenToolCalls` finds calls to run",
    "tools.server": "the server runs tools of MCP servers",
    "tools.session": "a session keeps tools of its client",
    "transfer": "`ExportSessions` writes archives of sessions, `ImportSessions` reads them",
    "transfer.continue": "`ImportSessions` adds what is new, and compares an archive with the server (`verify`)",
    "turns": "`GetTurn` and `ListTurns` show turns, also those whose events are no longer kept",
    "turns.start": "`StartTurn` answers a message that is already stored",
    "turns.watch": "`WatchTurn` streams the events of one turn",
    "uploads": "`CreateUpload` and `WriteUpload` take bytes in pieces, and continue after an interruption",
    "uploads.files": "messages and results of tools name uploads as their files (`upload_id`)",
    "usage": "`QueryUsage` sums what a tenant has used",
    "watch.resume": "a watch continues where an earlier one ended",
}
"""Maps lower-case words with dots to their meaning, in alphabetical order; docs/reference/contract.md has the table.

Every server of this version has all of these features. A released word is never removed.
"""
