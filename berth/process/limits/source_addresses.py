"""Addresses of callers: their one spelling, and what bounds of a source are counted by."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final

NETWORK_BITS: Final = 64
"""Of an IPv6 address: one caller has all addresses of such a network."""


@lru_cache(maxsize=4096)
def canonical(address: str) -> str | None:
    """The one spelling of an IP address: IPv4 also where it is written as IPv6. None if it is no address."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return None
    mapped = parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else None
    return str(mapped or parsed)


@lru_cache(maxsize=4096)
def source_key(address: str) -> str:
    """What every bound of a source counts: an IPv4 address, or the network of an IPv6 address; any other text is its own key."""
    spelt = canonical(address)
    if spelt is None or ":" not in spelt:
        return spelt or address
    return str(ip_network((spelt.partition("%")[0], NETWORK_BITS), strict=False))
