"""The live feed in memory.

Rings of framed events: one for each watched session, and one for each tenant whose sessions are watched together. A
watcher is a cursor into a ring. The feed never waits, never stores, and never exceeds its limit in bytes. Start with
`memory`.
"""
