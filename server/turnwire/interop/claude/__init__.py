"""Claude's data export: `conversations.json`, or the ZIP with it.

`reading` makes sessions from conversations, `blocks` reads the content of a message.
"""
