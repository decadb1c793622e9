"""`berth pool`: pools of nodes, and whether their nodes prove their TPMs."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from berth.cli.printing import Column, show_list, show_one
from berth.cli.session import Session, command

app = typer.Typer(no_args_is_help=True, help="Pools of nodes (admin keys only).")

POOLS: list[Column] = [
    ("id", lambda p: p.id), ("region", lambda p: p.region), ("gpu model", lambda p: p.gpu_model),
    ("shape", lambda p: p.shape), ("attestation", lambda p: p.attestation),
]  # fmt: skip


class Policy(StrEnum):
    """Whether the nodes of a pool prove their TPMs."""

    OFF = "off"
    OFFERED = "offered"
    REQUIRED = "required"


@command(app, "list")
def list_pools(session: Session) -> None:
    """List pools with the attestation policy of their nodes."""
    with session.client() as client:
        show_list(session, client.iterate_pools(), POOLS, empty="no pools")


@command(app, "attestation")
def set_attestation(
    session: Session,
    pool: Annotated[int, typer.Argument(help="id of the pool, as `berth pool list` shows it")],
    policy: Annotated[Policy, typer.Option(help="whether its nodes prove that they have their TPMs")],
) -> None:
    """Say whether the nodes of a pool must prove their TPMs; a node with its own policy keeps that."""
    with session.client() as client:
        show_one(session, client.set_pool_attestation(pool, policy=policy.value), POOLS)
