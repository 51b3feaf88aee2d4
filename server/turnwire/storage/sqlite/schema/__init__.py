"""The schema: one module for each version, and what brings a database from one to the next."""
