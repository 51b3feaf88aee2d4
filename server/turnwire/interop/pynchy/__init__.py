"""The message files of pynchy, an assistant in chats: SQLite files whose rows show only by their sender what they are.

`classification` decides what a row is, `decoration` takes off what old rows carry in their text, `presentation` shows
messages to people and names their role for a model. All three are pure.
"""
