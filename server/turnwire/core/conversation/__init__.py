"""The conversations of live sessions: their committed messages, and the intermediate results of their requests.

Start with `conversations.py`.
"""
