"""The commands that move conversations between Turnwire and other systems."""
