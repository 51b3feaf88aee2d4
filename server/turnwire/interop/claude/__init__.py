"""Claude's data export: `conversations.json`, or the ZIP with it.

`reading` makes sessions of conversations, `blocks` knows what the content of a message consists of.
"""
