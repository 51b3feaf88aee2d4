"""The common part of all adapters: it turns neutral requests into each API's form."""
