"""What an MCP server sends, before the SDK gets it: everything has a bound in size, count and pace."""
