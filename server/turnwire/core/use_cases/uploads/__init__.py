"""Uploads: receiving bytes in pieces, removing what expired, and files for those who use them up."""
