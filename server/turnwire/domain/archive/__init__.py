"""Archives: conversations outside a server, as a sequence of records."""
