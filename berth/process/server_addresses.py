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
SEVERAL_SERVERS = "postgresql://user:password@/database?host=a,b&port=5432,5432&target_session_attrs=read-write"
STANDBYS = "postgresql://user:password@host:5432/database?target_session_attrs=standby"
SESSION_ATTRIBUTES = ("any", "read-write", "read-only", "primary", "standby", "prefer-standby")
_OF_SERVERS = {"host", "hostaddr", "port", "target_session_attrs"}
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
    """The URL, if SQLAlchemy, psycopg, libpq and Alembic all take it to mean the same server or servers.

    Several servers are parameters, `?host=a,b&port=5432,5432`: SQLAlchemy takes no list in front of the database's name, and of a
    parameter that is given twice libpq uses the last.
    """
    form = "postgresql://user:password@host:5432/database"
    places = _places(url, DATABASE_SCHEMES, form)
    if len(places) > 1:
        raise _refuse(f"must name several servers as parameters: {SEVERAL_SERVERS}")
    _require_port(places[0])
    given = parse_qs(urlsplit(url).query, keep_blank_values=True)
    for name in _OF_SERVERS & given.keys():
        if len(given[name]) > 1:
            raise _refuse(f"must have the parameter {name} once; several servers look like {SEVERAL_SERVERS}")
        if places[0] and name in ("host", "port"):
            raise _refuse(
                f"must not have both a host and the parameter {name}; several servers look like {SEVERAL_SERVERS}"
            )
    _require_servers(given)
    return url


def _require_servers(given: dict[str, list[str]]) -> None:
    """Raise unless the parameters name servers that libpq could try, each with its port."""
    hosts = given["host"][0].split(",") if "host" in given else []
    ports = given["port"][0].split(",") if "port" in given else []
    if hosts and not all(hosts):
        raise _refuse(f"must not have an empty name in the parameter host; several servers look like {SEVERAL_SERVERS}")
    if len(ports) > 1 and len(ports) != len(hosts):
        raise _refuse(f"must have as many ports as hosts, or one port; several servers look like {SEVERAL_SERVERS}")
    for port in ports:
        _require_port(f":{port}")
    for host in hosts:
        if ":" in host and not host.startswith("/") and host.count(":") == 1:
            raise _refuse(f"must not have a port in the parameter host; several servers look like {SEVERAL_SERVERS}")
    sessions = given.get("target_session_attrs", ["any"])[0]
    if sessions not in SESSION_ATTRIBUTES:
        raise _refuse(f"must have as target_session_attrs one of {', '.join(SESSION_ATTRIBUTES)}")


def usable_standby_url(url: str) -> str:
    """The URL, if it leads to standbys alone: without `target_session_attrs=standby` a server that is promoted is taken, too."""
    usable_database_url(url)
    if parse_qs(urlsplit(url).query).get("target_session_attrs") != ["standby"]:
        raise _refuse(f"must have the parameter target_session_attrs=standby; it looks like {STANDBYS}")
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
StandbyUrl = Annotated[str, AfterValidator(usable_standby_url), AfterValidator(verified_database_url)]
"""The address of standbys that serve reads."""
NatsUrl = Annotated[str, AfterValidator(usable_nats_url)]
TemporalAddress = Annotated[str, AfterValidator(usable_temporal_address)]
