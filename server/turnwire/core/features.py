"""What this server can do, as words that clients read."""

from collections.abc import Mapping

FEATURES: Mapping[str, str] = {
    "agents": "`agent` chooses named settings, which `ListAgents` lists",
    "budgets": "turns and sessions end their turns when their tokens or their money is used up",
    "compaction": "older messages are summarised when the context would not fit",
    "explain": "`ExplainContext` shows what a model would be sent",
    "files.download": "`DownloadFile` reads the files of messages and results",
    "messages.append": "`AppendMessage` stores messages without a turn",
    "permissions": "tool calls may ask a person first",
    "queue": "messages wait while a turn runs",
    "requests.named": "`request_id` makes sending again safe",
    "tools.client": "clients declare tools and run them",
    "tools.server": "the server runs tools of MCP servers",
    "tools.session": "a session keeps tools of its client",
    "watch.resume": "a watch goes on where an earlier one ended",
}
"""Lower-case words with dots to what they mean, in alphabetical order; docs/contract.md has the same table.

A word is here when it is true of every server of this version; a word that was sent stays.
"""
