"""HTTP to servers that nobody trusts: model servers and MCP servers. What they send has bounds below every SDK."""
