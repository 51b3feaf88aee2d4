"""Sessions that are stored in parts, because one commit would hold up all others.

Until `adopt` gives it its id and its tenant, such a session has a name of its own in place of both, which begins with
`STAGING_MARK`, so that no read finds it. What a crash has left is dropped a little at a time.
"""
