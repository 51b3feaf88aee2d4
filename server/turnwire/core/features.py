"""The features of this server, as words for client programs."""

from collections.abc import Mapping

FEATURES: Mapping[str, str] = {
    "agents": "`agent` chooses named settings (`ListAgents`)",
    "answers.format": "`response_format` requests JSON, also by a schema",
    "budgets": "tokens and money of a turn or session are bounded",
    "compaction": "older messages are summarised when needed",
    "explain": "`ExplainContext` shows what a model would get",
    "files.download": "`DownloadFile` reads the files of messages and results",
    "labels": "a session keeps labels and facts (`metadata_json`) of its client",
    "messages.alternatives": "`RegenerateMessage` answers again, `SelectAlternative` chooses",
    "messages.append": "`AppendMessage` stores messages without a turn",
    "messages.append.answers": "`AppendMessage` accepts answers of models",
    "permissions": "tool calls may require a person's permission",
    "questions": "tools of the server ask a person while they run",
    "queue": "messages wait while a turn runs",
    "queue.edit": "waiting messages can be edited, moved and removed",
    "queue.expected": "`expected_turn_id` names the turn that the user saw",
    "queue.interrupt": "`BUSY_POLICY_INTERRUPT` ends the running turn",
    "queue.steer": "`BUSY_POLICY_STEER` joins the running turn",
    "quotas": "tenants have quotas (`ListQuotas`)",
    "requests.named": "`request_id` makes a retry safe",
    "search": "`SearchMessages` finds messages by their words",
    "sessions.archive": "`ArchiveSession` and `UnarchiveSession`",
    "sessions.fork": "`ForkSession` copies a session, or its beginning",
    "sessions.list": "`ListSessions` has filters and orders",
    "sessions.rewind": "`ClearSession` and `RevertSession` hide messages, `RestoreSession` brings them back",
    "sessions.settings": "`UpdateSession` sets and unsets by a mask",
    "tools.choice": "`tool_choice` requires or forbids calls",
    "tools.client": "clients declare tools and run them",
    "tools.leases": "`ListOpenToolCalls` finds calls, `ClaimToolCall` keeps others from running them",
    "tools.server": "the server runs tools of MCP servers",
    "tools.session": "a session keeps tools of its client",
    "transfer": "`ExportSessions` writes archives, `ImportSessions` reads them",
    "transfer.continue": "`ImportSessions` adds what is new, and compares (`verify`)",
    "turns": "`GetTurn` and `ListTurns` show turns",
    "turns.start": "`StartTurn` answers a message that is already stored",
    "turns.watch": "`WatchTurn` streams the events of one turn",
    "uploads": "`CreateUpload` and `WriteUpload` take bytes in pieces",
    "uploads.files": "messages and results of tools name uploads (`upload_id`)",
    "usage": "`QueryUsage` sums what a tenant has used",
    "watch.resume": "a watch continues where an earlier one ended",
}
"""Maps lower-case words with dots to their meaning, in alphabetical order; docs/reference/contract.md has the table.

Every server of this version has all of these features. A released word is never removed.
"""
