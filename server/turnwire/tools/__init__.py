"""Tools that the server runs: those of configured MCP servers.

Implements `turnwire.ports.tools`. Start with `mcp.servers.McpServers`. Nothing here may delay the start, the stop or a
session: whatever an MCP server does, a call ends within its time limit, and its error is a result that the model reads.
"""
