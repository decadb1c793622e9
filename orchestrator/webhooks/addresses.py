"""Which URLs and addresses webhooks may be sent to (docs/reference/webhooks.md).

Refuses IANA's special-purpose addresses (RFC 6890 and its successors) and every IPv6 range that embeds IPv4 addresses (mapped,
compatible and translated addresses, NAT64, 6to4, Teredo), which could reach a machine of this deployment. ISATAP addresses, which
may be in any range, count as the address that they embed. IPv6 is an allow list, because special-purpose ranges may be added.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final
from urllib.parse import urlsplit

URL_LENGTH_MAX: Final = 2_000
HOST_LENGTH_MAX: Final = 253
_FORBIDDEN_V4: Final = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
        "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24",
        "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
        "168.63.129.16/32",  # a cloud's own services, reached from inside its machines
    )
)  # fmt: skip
_GLOBAL_V6: Final = IPv6Network("2000::/3")
_FORBIDDEN_V6: Final = tuple(
    IPv6Network(text)
    for text in (
        "2001::/23",  # protocol assignments: Teredo (embeds IPv4), ORCHID, benchmarking
        "2001:db8::/32", "2002::/16",  # documentation; 6to4 (embeds IPv4)
        "2620:4f:8000::/48", "3fff::/20",
    )
)  # fmt: skip
_ISATAP: Final = frozenset({0x00005EFE, 0x02005EFE})
"""Upper half of an interface id that embeds an IPv4 address in the lower one (RFC 5214, 6.1)."""
_VISIBLE: Final = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True, slots=True)
class WebhookUrl:
    """The parts of a URL. `target` is path and query; `authority` is the value of the Host header."""

    scheme: str
    host: str
    port: int
    target: str

    @property
    def authority(self) -> str:
        """Host and port as in the Host header (RFC 9110, 7.2)."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == {"https": 443, "http": 80}[self.scheme] else f"{host}:{self.port}"


def read_webhook_url(url: str) -> WebhookUrl:
    """Parse a webhook URL. Raises ValueError that says what is wrong."""
    if not 0 < len(url) <= URL_LENGTH_MAX or _VISIBLE.fullmatch(url) is None or "\\" in url:
        raise ValueError("must be a URL of visible ASCII characters, without backslashes")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError("must be a URL with a host, and a port from 1 to 65535 if one is named") from error
    if parts.scheme not in ("https", "http"):
        raise ValueError("must begin with https://")
    if "@" in parts.netloc or "#" in url:
        raise ValueError("must have neither a user nor a fragment")
    if not host or len(host) > HOST_LENGTH_MAX or "%" in host or port == 0:
        raise ValueError("must be a URL with a host, and a port from 1 to 65535 if one is named")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return WebhookUrl(parts.scheme, host, port or (443 if parts.scheme == "https" else 80), target)


def is_public_address(text: str) -> bool:
    """Return whether `text` is an address on the public internet."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return _is_public_v4(address) if isinstance(address, IPv4Address) else _is_public_v6(address)


def _is_public_v4(address: IPv4Address) -> bool:
    return not any(address in network for network in _FORBIDDEN_V4)


def _is_public_v6(address: IPv6Address) -> bool:
    if address.scope_id is not None or address not in _GLOBAL_V6:
        return False
    if int(address) >> 32 & 0xFFFFFFFF in _ISATAP and not _is_public_v4(IPv4Address(int(address) & 0xFFFFFFFF)):
        return False
    return not any(address in network for network in _FORBIDDEN_V6)


def literal_address(host: str) -> str | None:
    """Return the address that a host denotes without name resolution; None for a name.

    The forms of inet_aton (`127.1`, `0x7f000001`, `2130706433`, `0177.0.0.1`) are addresses too: resolvers accept them.
    """
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return socket.inet_ntoa(socket.inet_aton(host))
    except OSError:
        return None


def is_private_host(host: str) -> bool:
    """Return whether a host is known to be private without resolving it."""
    name = host.rstrip(".").lower()
    address = literal_address(name)
    if address is not None:
        return not is_public_address(address)
    return name == "localhost" or name.endswith((".localhost", ".local", ".internal"))
