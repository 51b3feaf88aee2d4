"""The conversations of live sessions: their messages as they were committed, and what requests are made of.

Start with `conversations.py`.
"""
