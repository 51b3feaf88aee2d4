"""The live feed in memory.

Rings of framed events, one for each watched session and one for all; a watcher is a cursor into a ring. Never waits,
never stores, never grows beyond its bound in bytes. Start with `memory`.
"""
