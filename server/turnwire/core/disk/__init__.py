"""How a file on the server's disk is opened so that no link leads elsewhere, and which file systems it may be on.

Which files a caller may name is decided in `core/intake/readable_files.py`.
"""
