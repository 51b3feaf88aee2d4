"""JSON web tokens. Start with `verification`. Needs the extra `jwt`: import it only where they are configured."""
