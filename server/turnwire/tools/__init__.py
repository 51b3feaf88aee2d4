"""Tools that the server runs: MCP servers from the configuration.

Implements `turnwire.ports.tools`. Start with `mcp_servers.McpServers`. Nothing here may hold up the start, the stop or
a session: whatever an MCP server does, a call ends within its limit, and its error is a result that the model reads.
"""
