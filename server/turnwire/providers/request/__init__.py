"""The common part of all adapters: turns neutral requests into each API's form."""
