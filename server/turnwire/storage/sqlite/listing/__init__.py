"""Lists of sessions: what they are ordered and filtered by, kept in step with the settings, and how they are read.

A list is read in steps that look at a bounded number of sessions each, so that no other read waits for long.
"""
