"""OpenCode's HTTP API in front of Turnwire, for OpenCode's own clients: SDK, `run --attach`, `attach`, web page.

`app` is the application. `reading` and `writing` speak with Turnwire for one caller, `objects` and `questions` make
OpenCode's objects, `events` and `streams` tell what happens, `ids` turns the ids of both sides into each other.
Nothing is kept here: what OpenCode has and Turnwire has not is in the labels and metadata of sessions and messages.
"""

from turnwire_adapters.opencode.routes import app

__all__ = ["app"]
