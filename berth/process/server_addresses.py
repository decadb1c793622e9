"""Types of server addresses for settings: an address that cannot work is refused before the process starts.

An error message names the expected form and never contains the address, which may include a password.
"""

from __future__ import annotations

import os
import re
from ipaddress import ip_address
from typing import Annotated
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

DATABASE_SCHEMES = ("postgresql", "postgres")
NATS_SCHEMES = ("nats", "tls", "ws", "wss")
PORT_MAX = 65_535
_CREDENTIALS = re.compile(r"://[^/\s@]*@")


def _refuse(sentence: str) -> PydanticCustomError:
    return PydanticCustomError("unusable_address", "{sentence}", {"sentence": sentence})


def _require_port(place: str) -> None:
    """Raise unless `place` is `host`, `host:port`, or either with an IPv6 address in brackets."""
    _, colon, port = place.rpartition("]")[2].rpartition(":")
    if colon and not (port.isascii() and port.isdigit() and 1 <= int(port) <= PORT_MAX):
        raise _refuse(f"its port must be a number from 1 to {PORT_MAX}")


def _places(url: str, schemes: tuple[str, ...], form: str) -> list[str]:
    """The `host:port` parts of a URL, without user and password. Raises if it is no URL of these schemes."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise _refuse(f"must look like {form}") from error
    if parts.scheme not in schemes or not url.isprintable() or not url.startswith(f"{parts.scheme}://"):
        raise _refuse(f"must look like {form}")
    return parts.netloc.rpartition("@")[2].split(",")


def without_password(addresses: str) -> str:
    """Each address in a text, without the user and the password that it may hold: for messages and logs."""
    return _CREDENTIALS.sub("://", addresses)


def usable_database_url(url: str) -> str:
    """The URL, if PostgreSQL's client library could connect with it."""
    for place in _places(url, DATABASE_SCHEMES, "postgresql://user:password@host:5432/database"):
        _require_port(place)
    return url


def is_here(host: str | None) -> bool:
    """Whether a host is this machine: a loopback address, its name, or a Unix socket (a path, or no host at all)."""
    if host is None or host == "" or host == "localhost" or unquote(host).startswith(("/", "@")):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def database_hosts(parts: SplitResult) -> list[str]:
    """Each host that libpq would try for this address: of the parameters, else of the authority, else of PGHOST."""
    given = parse_qs(parts.query)
    for name in ("hostaddr", "host"):
        if name in given:
            return given[name][-1].split(",")
    places = parts.netloc.rpartition("@")[2].split(",")
    hosts = [re.sub(r":\d*$", "", place).strip("[]") for place in places]
    return hosts if any(hosts) else os.environ.get("PGHOST", "").split(",")


def verified_database_url(url: str) -> str:
    """The URL, with `sslmode=verify-full` if a server is on another machine and no mode is given (also not by PGSSLMODE).

    libpq's default, `prefer`, sends the password and all data in clear text to whatever answers at the address.
    """
    parts = urlsplit(url)
    if "sslmode" in parse_qs(parts.query) or os.environ.get("PGSSLMODE") or all(map(is_here, database_hosts(parts))):
        return url
    return f"{url}{'&' if parts.query else '?'}sslmode=verify-full"


def usable_nats_url(url: str) -> str:
    """The URL or URLs separated by commas, if each could be NATS's."""
    form = "nats://host:4222"
    for one in url.split(","):
        (place,) = _places(one.strip(), NATS_SCHEMES, form)
        if not place or place.startswith(":"):
            raise _refuse(f"must look like {form}")
        _require_port(place)
    return url


def usable_temporal_address(address: str) -> str:
    """The address, if it is `host:port`."""
    host, colon, port = address.rpartition(":")
    if not (host and colon and port) or "/" in address or not address.isprintable():
        raise _refuse("must look like host:7233")
    _require_port(address)
    return address


DatabaseUrl = Annotated[str, AfterValidator(usable_database_url), AfterValidator(verified_database_url)]
NatsUrl = Annotated[str, AfterValidator(usable_nats_url)]
TemporalAddress = Annotated[str, AfterValidator(usable_temporal_address)]
