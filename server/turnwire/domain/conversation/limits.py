"""Limits on the values of a conversation, from callers and from archives."""

import re
from datetime import timedelta

MAX_PARTS = 1000
"""Maximum parts of a message that a caller sends."""
MAX_METADATA_BYTES = 64 * 1024
"""Maximum size of the metadata of a message, which every page and event carries; larger data belongs in files."""
MAX_SESSION_TOOLS_BYTES = 256 * 1024
"""Maximum size of the tools of a session. They are part of every description of it and are kept in memory with it."""
MAX_SESSION_SYSTEM_CHARACTERS = 64 * 1024
"""Maximum length of the system prompt of a session, which is part of every description of it."""
MAX_PROMPT_CHARACTERS = 1_000_000
"""Maximum length of a system prompt or a tool's description: about the size of the largest context windows."""
MAX_RESULT_FILES = 20
"""Maximum files of one result of a tool; each is sent to the model again with every later step."""
MAX_LOG_LINES = 200
"""Maximum log lines of one call; a tool may report its progress a thousand times a second."""
MAX_LOG_CHARACTERS = 500
"""Maximum length of one log line of a tool; the rest of the line is cut off."""
MAX_NEW_LOG_LINES = 100
"""Maximum log lines of one request that renews a lease."""
MAX_NEW_LOG_BYTES = 64 * 1024
"""Maximum size of all log lines of one request."""
MAX_HOLDER_CHARACTERS = 128
"""Maximum length of the name that a client gives for the holder of a lease."""
MIN_LEASE = timedelta(seconds=1)
"""Shortest lease: over a slow network, the holder of a shorter one could not renew it in time."""
MAX_LEASE = timedelta(hours=1)
"""Longest lease: a holder that died keeps a call from others for this long at most."""
DEFAULT_LEASE = timedelta(minutes=1)
MAX_STOP_CHARACTERS = 1024
"""Maximum length of one stop sequence."""
MAX_STOP_SEQUENCES = 4
"""Maximum stop sequences of one turn; every model API accepts that many."""
MAX_LABELS = 64
"""Maximum labels of one session; they are part of every description of it."""
MAX_LABEL_CHARACTERS = 256
"""Maximum length of the value of a label."""
MAX_NUMBER = 2**53 - 1
"""Maximum of 64-bit numbers in responses, except money: the largest that a JavaScript number holds exactly."""
REASONING_EFFORTS = ("", "none", "minimal", "low", "medium", "high", "xhigh")

LABEL_KEY = re.compile(r"[a-z0-9._/-]{1,63}")
TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Names that every model API accepts."""
MIME = re.compile(r"[\w.+-]+/[\w.+-]+(?:\s*;.*)?", re.ASCII)
