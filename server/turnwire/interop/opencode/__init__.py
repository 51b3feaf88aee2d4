"""OpenCode's sessions as `opencode export` writes them: `{"info": ..., "messages": [{"info": ..., "parts": [...]}]}`.

`reading` makes sessions from them, `parts` reads the parts of messages, `writing` writes sessions: one line for each,
so that `opencode import` accepts an archive of one session.
"""
