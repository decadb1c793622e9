"""Which addresses are good enough to read keys from."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit


def is_trustworthy_url(url: str) -> bool:
    """Whether what is read there is safe from changes on the way: https, or http to a loopback address."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
        _ = parts.port  # read for its ValueError
    except ValueError:
        return False
    if not host or parts.username is not None or parts.fragment or not url.isprintable():
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(host))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
