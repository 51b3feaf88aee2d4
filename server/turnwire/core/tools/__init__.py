"""Tools: offers them to models, checks arguments, runs calls and asks for permission."""
