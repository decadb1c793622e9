"""`berth node bmc`: the BMCs of nodes. A password is read from a file or standard input, and sealed before it is sent."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from berth.cli.commands.nodes import Name
from berth.cli.endings import USAGE, Refused
from berth.cli.printing import Column, show_list, show_one
from berth.cli.session import Session, command

if TYPE_CHECKING:
    from uuid import UUID

    from berth.client import Client, SealedBmcPassword, Site

app = typer.Typer(no_args_is_help=True, help="BMCs of nodes (admin keys only).")

ROWS: list[Column] = [
    ("node", lambda b: b.node_id), ("site", lambda b: b.site_id), ("url", lambda b: b.url),
    ("certificate", lambda b: b.certificate_sha256), ("user", lambda b: b.username), ("system", lambda b: b.system_id),
    ("rotates at release", lambda b: b.rotates_at_release),
    ("console host key", lambda b: b.console_host_key),
    ("console shared", lambda b: b.console_shared),
    ("generation", lambda b: b.generation), ("pending generation", lambda b: b.pending_generation),
    ("recipients", lambda b: b.recipients), ("power", lambda b: b.power_state), ("looked at", lambda b: b.looked_at),
    ("answered at", lambda b: b.answered_at), ("silent because", lambda b: b.silent_because),
    ("model", lambda b: b.inventory and f"{b.inventory['manufacturer']} {b.inventory['model']}".strip()),
    ("serial", lambda b: b.inventory and b.inventory["serial"]),
    ("task", lambda b: b.task and b.task.kind), ("outcome", lambda b: b.task and (b.task.outcome or "open")),
    ("power after task", lambda b: b.task and b.task.power_state), ("failure", lambda b: b.task and b.task.failure),
    ("waits for", lambda b: b.task and b.task.waits and b.task.waits.for_),
    ("until", lambda b: b.task and b.task.waits and b.task.waits.until),
]  # fmt: skip
LISTED: list[Column] = [
    ("node", lambda b: b.node_id), ("url", lambda b: b.url), ("power", lambda b: b.power_state),
    ("answered at", lambda b: b.answered_at), ("silent because", lambda b: b.silent_because),
    ("looked at", lambda b: b.looked_at), ("task", lambda b: b.task and b.task.kind),
    ("outcome", lambda b: b.task and (b.task.outcome or "open")), ("failure", lambda b: b.task and b.task.failure),
]  # fmt: skip


@command(app, "list")
def list_bmcs(
    session: Session, site: Annotated[str | None, typer.Option(help="only BMCs of this site (name or id)")] = None
) -> None:
    """List BMCs, by node."""
    with session.client() as client:
        site_id = None if site is None else client.get_site(site).id
        show_list(session, client.iterate_bmcs(site_id=site_id), LISTED, empty="no BMCs")


@command(app, "show")
def show(session: Session, node: Name) -> None:
    """Show how a node's BMC is reached, what was read there last, and its newest task."""
    with session.client() as client:
        show_one(session, client.get_bmc(client.get_node(node).id), ROWS)


@command(app, "set")
def set_bmc(
    session: Session, node: Name,
    site: Annotated[str, typer.Option(help="site whose agents reach it (name or id)")],
    url: Annotated[str, typer.Option(help="https://host[:port]")],
    certificate_sha256: Annotated[str, typer.Option(help="SHA-256 of its TLS certificate, hex, compared at the BMC itself")],
    username: Annotated[str, typer.Option(help="account of the BMC")],
    system_id: Annotated[str | None, typer.Option(help="Id of the system, where the BMC has several")] = None,
    password_file: Annotated[
        Path | None, typer.Option(help="file with the account's password, `-` for standard input; default: as it is")
    ] = None,
    recovery_key: Annotated[
        str | None, typer.Option(help="refuse to seal unless the site has this recovery key")
    ] = None,
    rotate_at_release: Annotated[
        bool | None,
        typer.Option(help="whether each release rotates the password; default: as it is, and yes for a new BMC"),
    ] = None,
    console_host_key: Annotated[
        str | None,
        typer.Option(
            help="SSH host key of its serial console (`ssh-ed25519 AAAA...`), compared at the BMC itself; empty: no console"
        ),
    ] = None,
    console_shared: Annotated[
        bool | None,
        typer.Option(help="whether tenants may enter a console that is shared with the BMC's command line; default: as it is"),
    ] = None,
) -> None:  # fmt: skip
    """Register or change a node's BMC. The password is sealed here to the site's recipients; the control plane cannot read it."""
    with session.client() as client:
        found, node_id = client.get_site(site), client.get_node(node).id
        if recovery_key not in (None, found.recovery_key):
            raise Refused(
                f"site {found.name} has recovery key {found.recovery_key}, not the one that was given",
                code="usage",
                exit_code=USAGE,
            )
        password = None if password_file is None else _sealed(client, found, node_id, _read(password_file))
        done = client.put_bmc(
            node_id, site_id=found.id, url=url, certificate_sha256=certificate_sha256.lower().replace(":", ""),
            username=username, system_id=system_id, password=password,
            rotates_at_release=rotate_at_release, console_host_key=console_host_key, console_shared=console_shared,
        )  # fmt: skip
        show_one(session, done, ROWS)


def _read(path: Path) -> str:
    """The first line of a file or of standard input."""
    try:
        text = sys.stdin.readline() if str(path) == "-" else path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{path}: the password cannot be read", code="usage", exit_code=USAGE) from error
    line = text.split("\n", 1)[0].rstrip("\r")
    if not line:
        raise Refused(f"{path}: the password is empty", code="usage", exit_code=USAGE)
    return line


def _sealed(client: Client, site: Site, node_id: UUID, password: str) -> SealedBmcPassword:
    # cryptography, for this command alone: start-up stays light for all others.
    from berth.client import NotFound, SealedBmcPassword
    from berth.process.sealed_passwords import Purpose, seal_to_all

    try:
        present = client.get_bmc(node_id)
        generation = max(present.generation, present.pending_generation or 0) + 1
    except NotFound:
        generation = 1
    try:
        copies = seal_to_all(password, Purpose(site.id, node_id, generation), site.recipients())
    except ValueError as error:
        raise Refused(f"the password cannot be sealed: {error}", code="usage", exit_code=USAGE) from error
    return SealedBmcPassword(generation, copies)


@command(app, "remove")
def remove(session: Session, node: Name) -> None:
    """Forget a node's BMC, with its sealed passwords."""
    with session.client() as client:
        client.delete_bmc(client.get_node(node).id)
    session.console.print(f"the BMC of node {node} is forgotten", markup=False)


@command(app, "look")
def look(session: Session, node: Name) -> None:
    """Have the site's agent describe the machine by its BMC; `berth node bmc show` has the result."""
    with session.client() as client:
        show_one(session, client.describe_bmc(client.get_node(node).id), ROWS)


@command(app, "rotate")
def rotate(session: Session, node: Name) -> None:
    """Have the site's agent give the BMC a new password, sealed to every agent of the site and to its recovery key."""
    with session.client() as client:
        show_one(session, client.rotate_bmc_password(client.get_node(node).id), ROWS)


@command(app, "reseal")
def reseal(session: Session, node: Name) -> None:
    """Have the site's agent seal the present password to agents that enrolled later."""
    with session.client() as client:
        show_one(session, client.reseal_bmc_password(client.get_node(node).id), ROWS)


@command(app, "reset")
def reset(session: Session, node: Name) -> None:
    """Have the site's agent restart the BMC itself; the machine goes on. `berth node bmc show` has the result."""
    with session.client() as client:
        show_one(session, client.reset_bmc(client.get_node(node).id), ROWS)


class Verb(StrEnum):
    """`reset`: off by force, then on."""

    ON = "on"
    OFF = "off"
    RESET = "reset"


def power(session: Session, node: Name, verb: Annotated[Verb, typer.Argument(help="what to do")]) -> None:
    """Have the site's agent switch a node's machine; `berth node bmc show` has the result.

    `off` shuts the machine's system down, and forces it off where that is refused or ignored for 180 s.
    """
    with session.client() as client:
        show_one(session, client.switch_machine(client.get_node(node).id, verb=verb.value), ROWS)
