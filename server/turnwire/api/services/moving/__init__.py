"""Services that move whole sessions."""
