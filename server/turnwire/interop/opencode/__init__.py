"""OpenCode's sessions as `opencode export` writes them: `{"info": ..., "messages": [{"info": ..., "parts": [...]}]}`.

`reading` makes sessions of them, `parts` knows what messages consist of, `writing` is the way back: a line for each
session, so that an archive of one session is what `opencode import` takes.
"""
