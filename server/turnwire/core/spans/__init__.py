"""What the spans of turns, model calls and tool calls are called, and which attributes they have.

Names and attributes that begin with `gen_ai.` follow the GenAI semantic conventions of OpenTelemetry as published in
github.com/open-telemetry/semantic-conventions-genai in September 2026, which is after version 1.41 of the general
conventions and has no version of its own. They are in development: a later version may rename them. Ours begin with
`turnwire.`.
"""
