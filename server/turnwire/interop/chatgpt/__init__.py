"""ChatGPT's data export: `conversations.json`, or the ZIP with it and with the files of messages.

Each conversation is a tree of messages (`mapping`); the branch to `current_node` is the one that people see. `reading`
chooses it and makes messages, `contents` reads the types of content.
"""
