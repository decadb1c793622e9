"""`berth availability`: what can be had, now or in a window, and from when."""

from __future__ import annotations

from typing import Annotated

import typer

from berth.cli.moments import moment
from berth.cli.printing import Column, show_list
from berth.cli.session import Session

COLUMNS: list[Column] = [
    ("sku", lambda a: a.sku), ("region", lambda a: a.region), ("free GPUs", lambda a: a.free_gpus),
    ("largest", lambda a: a.largest_now), ("of", lambda a: a.total_gpus), ("fits from", lambda a: a.earliest_at),
]  # fmt: skip


def availability(
    session: Session,
    sku: Annotated[str | None, typer.Option(help="only this SKU")] = None,
    region: Annotated[str | None, typer.Option(help="only this region")] = None,
    gpus: Annotated[int | None, typer.Option(min=1, help="also: from when so many GPUs fit on one node")] = None,
    count: Annotated[int | None, typer.Option(min=1, help="so many times")] = None,
    starts_at: Annotated[str | None, typer.Option(help="in the window from here; default: now")] = None,
    ends_at: Annotated[str | None, typer.Option(help="to here; default: open-ended")] = None,
) -> None:
    """Show what can be had, per SKU and region."""
    with session.client() as client:
        found = client.get_availability(
            sku=sku, region=region, gpus=gpus, count=count,
            starts_at=moment(starts_at, "--starts-at"), ends_at=moment(ends_at, "--ends-at"),
        )  # fmt: skip
        show_list(session, found.items, COLUMNS, empty="nothing is sold there")
