"""The Chat Completions API of OpenAI and compatible servers."""
