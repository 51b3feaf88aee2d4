"""Reads the section `[metrics]` of a configuration."""

import ipaddress
import re

from turnwire.config.document import Document
from turnwire.config.sections import MetricsConfig


def read_metrics(document: Document) -> MetricsConfig:
    """Returns the section.

    Raises:
        ConfigError: a value is invalid, or the address is open to other machines without `insecure`.
    """
    metrics = document.section("metrics", MetricsConfig)
    if not metrics.listen:
        return metrics
    try:
        host, _ = host_and_port(metrics.listen)
    except ValueError:
        raise document.error("metrics.listen", f"{metrics.listen!r} is not host:port") from None
    if not metrics.insecure and not _is_loopback(host):
        problem = f"other machines can reach {metrics.listen}, and metrics have no authentication"
        raise document.error("metrics.listen", f"{problem}: use 127.0.0.1, or set metrics.insecure = true")
    return metrics


def host_and_port(listen: str) -> tuple[str, int]:
    """Returns the parts of an address such as `127.0.0.1:9464` or `[::1]:9464`. Raises ValueError."""
    found = re.fullmatch(r"(?:([^\s:/\[\]]+)|\[([0-9a-fA-F:.]+)\]):(\d{1,5})", listen)
    if found is None or int(found[3]) > 65_535:
        raise ValueError(f"{listen!r} is not host:port")
    return found[1] or found[2], int(found[3])


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
