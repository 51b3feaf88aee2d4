"""Tools: which are offered, checking arguments, running calls, and asking for permission."""
