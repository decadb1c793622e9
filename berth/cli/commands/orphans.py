"""`berth node orphans`, `adopt`, `destroy-orphan`: guests on nodes that the control plane does not know."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import typer

from berth.cli.commands.nodes import Name
from berth.cli.printing import Column, show_list, show_one
from berth.cli.session import Session

LISTED: list[Column] = [
    ("id", lambda o: o.id), ("allocation", lambda o: o.allocation_id), ("slots", lambda o: o.slots),
    ("state", lambda o: o.state), ("first seen", lambda o: o.first_seen_at), ("last seen", lambda o: o.last_seen_at),
    ("failure", lambda o: None if o.failure is None else o.failure.code),
]  # fmt: skip
SHOWN: list[Column] = [
    ("id", lambda o: o.id), ("node", lambda o: o.node_id), ("allocation", lambda o: o.allocation_id),
    ("slots", lambda o: o.slots), ("fence", lambda o: o.fence), ("state", lambda o: o.state),
    ("first seen", lambda o: o.first_seen_at), ("last seen", lambda o: o.last_seen_at),
    ("decided by", lambda o: o.decided_by), ("reason", lambda o: o.reason), ("adopted for", lambda o: o.adopted_for),
    ("attempts", lambda o: o.attempts), ("failure", lambda o: None if o.failure is None else o.failure.code),
    ("detail", lambda o: None if o.failure is None else o.failure.detail),
    ("waits for", lambda o: None if o.waits is None else o.waits.for_), ("destroyed", lambda o: o.destroyed_at),
]  # fmt: skip

OrphanId = Annotated[UUID, typer.Argument(help="the orphan's id")]
Reason = Annotated[str, typer.Option(help="the reason, stored in the audit log")]


def list_orphans(
    session: Session,
    node: Name,
    every: Annotated[bool, typer.Option("--all", help="include destroyed ones")] = False,
) -> None:
    """List a node's orphans: guests that the control plane does not know. Their slots are out of service."""
    with session.client() as client:
        found = client.iterate_orphans(client.get_node(node).id, every=every)
        show_list(session, found, LISTED, empty="no orphans")


def adopt(
    session: Session,
    node: Name,
    orphan: OrphanId,
    reason: Reason,
    allocation: Annotated[UUID | None, typer.Option(help="the allocation on this node that it belongs to")] = None,
) -> None:
    """Keep an orphan, with or without an allocation of the node; its slots stay out of service."""
    with session.client() as client:
        node_id = client.get_node(node).id
        show_one(session, client.adopt_orphan(node_id, orphan, reason=reason, allocation_id=allocation), SHOWN)


def destroy(session: Session, node: Name, orphan: OrphanId, reason: Reason) -> None:
    """Have the node remove an orphan; its slots return to service when the node has proven the removal."""
    with session.client() as client:
        show_one(session, client.destroy_orphan(client.get_node(node).id, orphan, reason=reason), SHOWN)
