"""`berth site`: sites, and the agents that reach the BMCs of their machines (admin keys only)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from berth.cli.endings import USAGE, Refused
from berth.cli.printing import Column, show_list, show_one
from berth.cli.session import Session, command

if TYPE_CHECKING:
    from berth.client import Site, SiteAgent

app = typer.Typer(no_args_is_help=True, help="Sites, whose agents reach the BMCs of machines (admin keys only).")

SiteName = Annotated[str, typer.Argument(metavar="SITE", help="the site's name or id")]
AgentName = Annotated[str, typer.Argument(metavar="AGENT", help="the agent's name")]


def _holder(site: Site) -> str | None:
    if site.lease is None:
        return None
    return next((agent.name for agent in site.agents if agent.id == site.lease.agent_id), str(site.lease.agent_id))


def _key(agent: SiteAgent) -> str:
    return "no key" if agent.sealing_key_fingerprint is None else f"key {agent.sealing_key_fingerprint}"


COLUMNS: list[Column] = [
    ("name", lambda s: s.name), ("id", lambda s: s.id), ("machines", lambda s: s.machines),
    ("agents", lambda s: sum(agent.state == "active" for agent in s.agents)),
    ("holder", _holder),
]  # fmt: skip
ROWS: list[Column] = [
    *COLUMNS, ("recovery key", lambda s: s.recovery_key_fingerprint),
    ("lease until", lambda s: s.lease and s.lease.until), ("fence", lambda s: s.lease and s.lease.fence),
    ("known agents", lambda s: ", ".join(f"{a.name} ({a.state}, {_key(a)})" for a in s.agents)),
]  # fmt: skip
AGENT: list[Column] = [
    ("name", lambda a: a.name), ("id", lambda a: a.id), ("state", lambda a: a.state), ("epoch", lambda a: a.epoch),
    ("sealing key", lambda a: a.sealing_key_fingerprint), ("last seen", lambda a: a.last_seen_at),
]  # fmt: skip
TOKEN: list[Column] = [
    ("agent", lambda t: t.agent_id), ("token", lambda t: t.token), ("expires", lambda t: t.expires_at),
]  # fmt: skip


@command(app, "new-recovery-key")
def new_recovery_key(
    session: Session,
    private: Annotated[Path, typer.Argument(metavar="FILE", help="new file for the private key; keep it offline")],
) -> None:
    """Make a recovery key pair, on a machine that is no server: print the public key, write the private one to a file."""
    # cryptography, for this command alone: start-up stays light for all others.
    from berth.process.sealed_passwords import fingerprint, new_key_pem, read_key

    try:
        _write_private(private, new_key_pem())
        public = read_key(private).public_key().public_bytes_raw()
    except OSError as error:
        raise Refused(f"{private}: {error.strerror}", code="usage", exit_code=USAGE) from error
    if session.json:
        session.console.print_json(data={"public_key": public.hex(), "private_key_file": str(private)})
        return
    session.console.print(public.hex(), markup=False, soft_wrap=True)
    session.console.print(f"fingerprint {fingerprint(public)}; private key in {private}", markup=False, soft_wrap=True)


def _write_private(path: Path, content: bytes) -> None:
    """Write a new file that its owner alone reads. Raises OSError if there is one."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)


@command(app, "create")
def create(
    session: Session,
    name: Annotated[str, typer.Argument(help="name of the new site")],
    recovery_key: Annotated[str, typer.Option(help="public key that `berth site new-recovery-key` printed")],
) -> None:
    """Create a site."""
    with session.client() as client:
        show_one(session, client.create_site(name=name, recovery_key=recovery_key), ROWS)


@command(app, "list")
def list_sites(session: Session) -> None:
    """List sites."""
    with session.client() as client:
        show_list(session, client.iterate_sites(), COLUMNS, empty="no sites")


@command(app, "show")
def show(session: Session, site: SiteName) -> None:
    """Show a site, the agent that acts for it, and the fingerprints of the keys to which passwords are sealed."""
    with session.client() as client:
        show_one(session, client.get_site(site), ROWS)


@command(app, "remove")
def remove(session: Session, site: SiteName) -> None:
    """Remove a site whose agents are all revoked and to which no BMC belongs."""
    with session.client() as client:
        client.delete_site(client.get_site(site).id)
    session.console.print(f"site {site} is removed", markup=False)


@command(app, "enrol-agent")
def enrol_agent(
    session: Session, site: SiteName, agent: AgentName,
    hardware_id: Annotated[str | None, typer.Option(help="only a host with this id may use the token")] = None,
    valid_seconds: Annotated[int | None, typer.Option(min=1, help="how long the token is valid")] = None,
) -> None:  # fmt: skip
    """Print a one-time token with which an agent of the site enrols; the agent is made if there is none of this name."""
    with session.client() as client:
        made = client.invite_site_agent(
            client.get_site(site).id, name=agent, hardware_id=hardware_id, valid_seconds=valid_seconds
        )
        show_one(session, made, TOKEN)


@command(app, "revoke-agent")
def revoke_agent(
    session: Session, site: SiteName, agent: AgentName, reason: Annotated[str, typer.Option(help="why, on the record")]
) -> None:
    """Revoke an agent: its certificates and tokens count no more. Rotate the passwords of the site's BMCs after this."""
    with session.client() as client:
        found = client.get_site(site)
        show_one(session, client.revoke_site_agent(found.id, _agent(found, agent).id, reason=reason), AGENT)


def _agent(site: Site, name: str) -> SiteAgent:
    found = next((one for one in site.agents if one.name == name), None)
    if found is None:
        raise Refused(f"site {site.name} has no agent {name}", code="usage", exit_code=USAGE)
    return found
