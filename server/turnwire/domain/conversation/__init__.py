"""Values of a conversation: messages, sessions, turns, permissions and events."""
