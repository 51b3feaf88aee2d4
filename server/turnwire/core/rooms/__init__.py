"""Room in memory that turns and requests of all sessions share."""
