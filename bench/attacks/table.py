"""All attacks, in the order in which they run."""

from collections.abc import Mapping

from bench.attacks import costly_requests, large_requests, many_calls, unread_answers
from bench.attacks.attack import Attack

_MODULES = (many_calls, large_requests, unread_answers, costly_requests)

ATTACKS: Mapping[str, Attack] = {attack.name: attack for module in _MODULES for attack in module.ATTACKS}
"""By name."""
