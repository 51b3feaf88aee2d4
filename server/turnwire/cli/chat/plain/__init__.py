"""Text in, text out: what a pipe and a single message get. It writes no escape codes unless rich colours a terminal."""
