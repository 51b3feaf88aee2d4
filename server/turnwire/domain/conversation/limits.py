"""How much values of a conversation may hold, whoever brings them: a caller or an archive."""

import re
from datetime import timedelta

MAX_PARTS = 1000
"""Of a message that a caller sends."""
MAX_METADATA_BYTES = 64 * 1024
"""Of the metadata of a message, which rides with it in every page and event; files are for more."""
MAX_SESSION_TOOLS_BYTES = 256 * 1024
"""Of the tools of a session. They ride in every description of it and are kept in memory with it."""
MAX_SESSION_SYSTEM_CHARACTERS = 64 * 1024
"""Of the system prompt of a session, which rides in every description of it."""
MAX_PROMPT_CHARACTERS = 1_000_000
"""Of a system prompt or a tool's description: about what the largest context windows hold."""
MAX_RESULT_FILES = 20
"""Of one result of a tool; each is sent to the model again with every later step."""
MAX_LOG_LINES = 200
"""Log lines of one call; a tool may report its progress a thousand times a second."""
MAX_LOG_CHARACTERS = 500
"""Of one log line; the rest of a line that a tool writes is cut off."""
MAX_NEW_LOG_LINES = 100
"""Log lines of one request that renews a lease."""
MAX_NEW_LOG_BYTES = 64 * 1024
"""Of the log lines of one such request together."""
MAX_HOLDER_CHARACTERS = 128
"""Of the words in which a client says who holds a lease."""
MIN_LEASE = timedelta(seconds=1)
"""Shortest lease: over a slow network, the holder of a shorter one could not renew it in time."""
MAX_LEASE = timedelta(hours=1)
"""Longest lease: so long, at most, a holder that died keeps a call from others."""
DEFAULT_LEASE = timedelta(minutes=1)
MAX_STOP_CHARACTERS = 1024
"""Of one stop sequence."""
MAX_STOP_SEQUENCES = 4
"""Of one turn: what every model API takes."""
MAX_LABELS = 64
"""Of one session; they ride in every description of it."""
MAX_LABEL_CHARACTERS = 256
"""Of the value of a label."""
MAX_NUMBER = 2**53 - 1
"""Of 64-bit numbers that are answered again, except money: the largest that a JavaScript number holds exactly."""
REASONING_EFFORTS = ("", "none", "minimal", "low", "medium", "high", "xhigh")

LABEL_KEY = re.compile(r"[a-z0-9._/-]{1,63}")
TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Names that every model API takes."""
MIME = re.compile(r"[\w.+-]+/[\w.+-]+(?:\s*;.*)?", re.ASCII)
