"""Open calls: those that a client may run, by tenant and session, so that nobody reads conversations to find them."""
