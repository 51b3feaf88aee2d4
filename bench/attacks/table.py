"""All attacks."""

from collections.abc import Mapping

from bench.attacks import (
    costly_requests,
    json_requests,
    large_messages,
    large_prompts,
    large_requests,
    many_calls,
    many_names,
    many_sessions,
    many_tenants,
    many_watchers,
    offline_texts,
    reflection,
    tiny_frames,
    unread_answers,
    unread_streams,
    uploaded_files,
    waiting_people,
    wild_http_tools,
    wild_models,
    wild_tools,
)
from bench.attacks.attack import Attack

_MODULES = (
    costly_requests,
    json_requests,
    large_messages,
    large_prompts,
    large_requests,
    many_calls,
    many_names,
    many_sessions,
    many_tenants,
    many_watchers,
    offline_texts,
    reflection,
    tiny_frames,
    unread_answers,
    unread_streams,
    uploaded_files,
    waiting_people,
    wild_http_tools,
    wild_models,
    wild_tools,
)

ATTACKS: Mapping[str, Attack] = {attack.name: attack for module in _MODULES for attack in module.ATTACKS}
"""By name."""
