"""Networks of clients."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwire.domain.networks import network_of_peer


@pytest.mark.parametrize(
    ("network", "names"),
    [
        ("10.0.0.1", ["ipv4:10.0.0.1:5", "10.0.0.1:6", "ipv6:%5B::ffff:10.0.0.1%5D:7", "::ffff:10.0.0.1:8"]),
        ("::/64", ["ipv6:%5B::1%5D:7", "ipv6:[::1]:7", "::1:8"]),
        ("2001:db8:0:1::/64", ["ipv6:%5B2001:db8:0:1::1%5D:7", "2001:db8:0:1:ffff:ffff:ffff:ffff:8"]),
        ("2001:db8:0:2::/64", ["ipv6:%5B2001:db8:0:2::1%5D:7", "2001:db8:0:2::1:7"]),
        ("fe80::/64", ["ipv6:%5Bfe80::1%252%5D:5", "ipv6:%5Bfe80::2%25eth0%5D:5", "fe80::3%eth0:6"]),
        ("unix", ["unix:", "unix:/its/path:5", "unix-abstract:ipv4:10.0.0.1:5"]),
        ("mcp files", ["mcp files"]),
        ("turns of acme", ["turns of acme"]),
        ("", [""]),
    ],
)
def test_connections_of_a_network(network: str, names: list[str]) -> None:
    """At both listeners: an address of IPv4, or a /64 of IPv6. What is no connection is one by itself."""
    assert {network_of_peer(name) for name in names} == {network}


@given(st.one_of(st.text(), st.text("ipv46:%5BD[]./1f", max_size=40)))
def test_any_name_has_a_network(name: str) -> None:
    """Names of peers come from gRPC and the system, and those of tenants from their operators."""
    assert isinstance(network_of_peer(name), str)
