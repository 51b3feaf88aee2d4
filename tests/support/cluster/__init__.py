"""What is asked of several nodes on one database: guarantees with names, and their checks."""
