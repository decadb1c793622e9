"""`ip`, `nft` and `conntrack`, each called with a list of arguments. Every problem is a `NetworkError`, an OSError."""

from __future__ import annotations

import json
import re
import subprocess

from berth.process.json_objects import JsonObject
from node_agent.drivers.libvirt.network.rules import ASKING

PROGRAM_SECONDS_MAX = 20.0
_COUNTED = re.compile(rf"(set {ASKING} \{{[^}}]*?)\s*elements = \{{[^}}]*\}}")
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


class NetworkError(OSError):
    """A program is missing, hangs, or refuses; the text is the program's."""


def call(*arguments: str, text: str = "", passing: tuple[int, ...] = (0,)) -> str:
    """Run the program and return its output. Raises NetworkError for an exit status that is not `passing`."""
    try:
        done = subprocess.run(
            arguments, input=text, capture_output=True, text=True, check=False, timeout=PROGRAM_SECONDS_MAX,
            env={"PATH": _PATH, "LC_ALL": "C"},
        )  # fmt: skip
    except FileNotFoundError as error:
        raise NetworkError(f"{arguments[0]} is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise NetworkError(f"{arguments[0]} did not end within {PROGRAM_SECONDS_MAX:.0f} s") from error
    if done.returncode not in passing:
        said = " ".join(done.stderr.split())[:500]
        raise NetworkError(f"{' '.join(arguments)}: exit status {done.returncode}: {said}")
    return done.stdout


def apply_rules(text: str) -> None:
    """Carry a text of nftables out as one transaction: all of it or nothing. Raises NetworkError."""
    if text:
        call("nft", "-f", "-", text=text)


def listed_rules(tables: tuple[str, ...]) -> str | None:
    """The tables as nftables lists them, without counters and what the kernel counts requests in; None if one is not there.

    Raises NetworkError.
    """
    found = {f"{one['table']['family']} {one['table']['name']}" for one in _json("nft", "-j", "list", "tables")}
    if not found >= set(tables):
        return None
    text = "".join(call("nft", "-s", "list", "table", *table.split()) for table in tables)
    return _COUNTED.sub(r"\1", text)


def forget_connections(address: str) -> None:
    """Remove every tracked connection from or to a guest's address. Raises NetworkError."""
    for side in ("--orig-src", "--orig-dst", "--reply-src"):
        # 1: there was none.
        call("conntrack", "-D", "-f", "ipv4", side, address, passing=(0, 1))


def _json(*arguments: str) -> list[JsonObject]:
    said = json.loads(call(*arguments) or "{}")
    return [one for one in said.get("nftables", []) if "table" in one]
