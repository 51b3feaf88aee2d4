"""What a listener may call: one class a module."""
