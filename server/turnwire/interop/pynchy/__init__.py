"""The message files of pynchy, an assistant in chats: SQLite files whose rows show only by their sender what they are.

`classification` decides what a row is, `decoration` takes off what old rows carry in their text, `presentation` shows
messages to people and names their role for a model. These three are pure. `legacy_file` recognises such a file and
reads it, `migration` adds the types in place, `verification` proves that nothing else has changed. `conversations`
makes sessions of its chats, `messages` a message of each row, and `old_values` keeps with it what else the row has.
"""
