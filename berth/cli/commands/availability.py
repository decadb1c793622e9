"""`berth availability`: free capacity now or in a window, and the earliest start."""

from __future__ import annotations

from typing import Annotated

import typer

from berth.cli.printing import Column, show_list
from berth.cli.session import Session
from berth.cli.times import moment

NOW: list[Column] = [
    ("sku", lambda a: a.sku), ("region", lambda a: a.region), ("free GPUs", lambda a: a.free_gpus),
    ("largest", lambda a: a.largest_now), ("of", lambda a: a.total_gpus),
]  # fmt: skip
IN_A_WINDOW: list[Column] = [
    ("sku", lambda a: a.sku), ("region", lambda a: a.region), ("GPUs", lambda a: a.gpus),
    ("times", lambda a: a.available), ("starts", lambda a: a.starts_at), ("ends", lambda a: a.ends_at),
    ("wanted", lambda a: a.count), ("fits from", lambda a: a.earliest_at or a.reason),
]  # fmt: skip


def availability(
    session: Session,
    sku: Annotated[str | None, typer.Option(help="only this SKU")] = None,
    region: Annotated[str | None, typer.Option(help="only this region")] = None,
    gpus: Annotated[
        int | None, typer.Option(min=1, help="GPUs of one allocation, on one node; default: the SKU's smallest count")
    ] = None,
    count: Annotated[int | None, typer.Option(min=1, help="how many such allocations; default: 1")] = None,
    starts_at: Annotated[str | None, typer.Option(help="start of the window; default: now")] = None,
    ends_at: Annotated[str | None, typer.Option(help="end of the window; default: open-ended")] = None,
) -> None:
    """Show free capacity per SKU and region; with a count or a window, how often it fits and the earliest start."""
    first, last = moment(starts_at, "--starts-at"), moment(ends_at, "--ends-at")
    asked = any(one is not None for one in (gpus, count, first, last))
    with session.client() as client:
        found = client.iterate_availability(
            sku=sku, region=region, gpus=gpus, count=count, starts_at=first, ends_at=last
        )
        show_list(session, found, IN_A_WINDOW if asked else NOW, empty="nothing like that is sold there")
