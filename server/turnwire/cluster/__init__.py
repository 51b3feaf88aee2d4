"""Several nodes on one database: which node owns which sessions, and how calls reach it."""
