"""Rules of the model APIs, written from their references and PROVIDER_RULES, not from our request builders.

Each `check_…` takes the JSON body of a request and returns every rule that it breaks, as sentences with the place in
front; an empty list is a request that the API would not refuse for its shape. Pure functions.
"""

from tests.support.rules.anthropic import check_anthropic
from tests.support.rules.chat import check_chat
from tests.support.rules.responses import check_responses

__all__ = ["check_anthropic", "check_chat", "check_responses"]
