"""The store in PostgreSQL. Needs the extra `postgres`."""
