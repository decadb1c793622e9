"""`berth maintenance`: windows in which operators work on nodes or slots."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from berth.cli.printing import Column, show_list, show_one
from berth.cli.session import Session, command
from berth.cli.times import moment
from berth.process.json_objects import JsonObject

if TYPE_CHECKING:
    from berth.client import Client, MaintenanceWindow

app = typer.Typer(no_args_is_help=True, help="Maintenance windows of nodes and slots (admin keys only).")


def _task(window: MaintenanceWindow) -> str | None:
    """What the window runs, and on how many nodes it is in each state."""
    if window.task is None:
        return None
    states = Counter(one.state for one in window.tasks)
    counted = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
    return f"{window.task.plugin or window.task.kind}: {counted}"


LISTED: list[Column] = [
    ("id", lambda w: w.window_id), ("state", lambda w: w.state), ("starts", lambda w: w.starts_at),
    ("ends", lambda w: w.ends_at), ("resources", lambda w: w.resources), ("planned", lambda w: len(w.planned)),
    ("reason", lambda w: w.reason),
]  # fmt: skip
SHOWN: list[Column] = [
    *LISTED[:-2], ("planned", lambda w: w.planned), LISTED[-1], ("task", _task), ("started", lambda w: w.started_at),
    ("ended", lambda w: w.ended_at), ("waits for", lambda w: w.waits_for), ("until", lambda w: w.waits_until),
]  # fmt: skip
TASKS: list[Column] = [
    ("node", lambda t: t.node_id), ("state", lambda t: t.state), ("begun", lambda t: t.begun_at),
    ("ended", lambda t: t.ended_at), ("until", lambda t: t.waits_until), ("failure", lambda t: t.failure),
    ("evidence", lambda t: t.evidence),
]  # fmt: skip
CONFLICTS: list[Column] = [
    ("owner", lambda c: c.owner), ("state", lambda c: c.state), ("starts", lambda c: c.starts_at),
    ("ends", lambda c: c.ends_at), ("resources", lambda c: c.resources), ("resolution", lambda c: c.resolution),
]  # fmt: skip

WindowId = Annotated[UUID, typer.Argument(help="the window's id")]
Nodes = Annotated[
    list[str] | None, typer.Option("--node", "--nodes", help="a node's name or id, or several with commas; repeatable")
]
Slots = Annotated[list[str] | None, typer.Option("--slot", help="slot:<node id>:<index>; repeatable")]
StartsAt = Annotated[str, typer.Option(help="RFC 3339 with its zone; a past time: at once")]
EndsAt = Annotated[str, typer.Option(help="RFC 3339 with its zone")]


class State(StrEnum):
    """Of a window."""

    SCHEDULED = "scheduled"
    ACTIVE = "active"
    ENDED = "ended"
    CANCELLED = "cancelled"


class Moving(StrEnum):
    """What a commit does about reservations of a SKU in its way."""

    MOVE = "move"
    REFUSE = "refuse"


class Kind(StrEnum):
    """What a window runs on each of its nodes."""

    HEALTH_PROBE = "health_probe"
    BURN_IN = "burn_in"
    GPU_RESET = "gpu_reset"
    PLUGIN = "plugin"
    FIRMWARE = "firmware"


class Restart(StrEnum):
    """What is restarted after an update of firmware."""

    AUTO = "auto"
    HOST = "host"
    BMC = "bmc"


class Choice(StrEnum):
    """What a commit does about allocations in its way."""

    NOTIFY = "notify"
    REFUSE = "refuse"


def _time(text: str, option: str) -> datetime:
    found = moment(text, option)
    assert found is not None, "a time was given"
    return found


def _resources(client: Client, nodes: list[str] | None, slots: list[str] | None) -> list[str]:
    """The names of the resources; a node is named by its id. No name contains a comma."""
    named = [node for several in nodes or () for node in several.split(",") if node]
    return [*(f"node:{client.get_node(node).id}" for node in dict.fromkeys(named)), *(slots or ())]


def _firmware(
    task: Kind | None, image: str | None, sha256: str | None, targets: list[str] | None, version: str | None, restart: Restart
) -> JsonObject | None:  # fmt: skip
    """The order of an update, which has all parts."""
    given = (image, sha256, targets, version)
    if task is not Kind.FIRMWARE:
        if any(given) or restart is not Restart.AUTO:
            raise typer.BadParameter("--image, --sha256, --target, --version and --restart need --task firmware")
        return None
    if not all(given):
        raise typer.BadParameter("--task firmware needs --image, --sha256, --target and --version")
    return {"image_url": image, "sha256": sha256, "targets": targets, "version": version, "restart": restart.value}


@command(app, "plan")
def plan(session: Session, starts_at: StartsAt, ends_at: EndsAt, node: Nodes = None, slot: Slots = None) -> None:
    """List the claims in the way of a window; changes nothing."""
    starts, ends = _time(starts_at, "--starts-at"), _time(ends_at, "--ends-at")
    with session.client() as client:
        found = client.plan_maintenance(resources=_resources(client, node, slot), starts_at=starts, ends_at=ends)
    show_list(session, iter(found.conflicts), CONFLICTS, empty="no conflicts")


@command(app, "commit")
def commit(
    session: Session,
    starts_at: StartsAt,
    ends_at: EndsAt,
    reason: Annotated[str, typer.Option(help="shown to the tenants that are notified")],
    node: Nodes = None,
    slot: Slots = None,
    allocations: Annotated[
        Choice, typer.Option(help="notify the tenants of allocations in the way, or refuse the window")
    ] = Choice.REFUSE,
    reservations: Annotated[
        Moving, typer.Option(help="move the claims of reservations of a SKU to equal units, or refuse the window")
    ] = Moving.REFUSE,
    task: Annotated[
        Kind | None, typer.Option(help="what the window runs on each node, once it holds all of its units there")
    ] = None,
    plugin: Annotated[
        str | None, typer.Option(help="of --task plugin: the file in the folder of maintenance plugins of each node")
    ] = None,
    image: Annotated[
        str | None, typer.Option(help="of --task firmware: the http(s) URL where the site's agent fetches the image")
    ] = None,
    sha256: Annotated[str | None, typer.Option(help="of --task firmware: the SHA-256 of the image, in hex")] = None,
    target: Annotated[
        list[str] | None, typer.Option(help="of --task firmware: an id of the BMC's firmware inventory; repeatable")
    ] = None,
    version: Annotated[
        str | None, typer.Option(help="of --task firmware: what the BMC states of each target afterwards")
    ] = None,
    restart: Annotated[
        Restart, typer.Option(help="of --task firmware: what is restarted after it; auto: what the BMC's task asks for")
    ] = Restart.AUTO,
    task_timeout: Annotated[int | None, typer.Option(help="seconds that a node has for the task", min=1)] = None,
) -> None:
    """Commit a window: it claims its nodes and slots, and runs its task."""
    firmware = _firmware(task, image, sha256, target, version, restart)
    if task is None and (plugin is not None or task_timeout is not None):
        raise typer.BadParameter("--plugin and --task-timeout need --task")
    order = None
    if task is not None:
        order = {"kind": task.value, "plugin": plugin, "firmware": firmware, "timeout_seconds": task_timeout}
    starts, ends = _time(starts_at, "--starts-at"), _time(ends_at, "--ends-at")
    with session.client() as client:
        made = client.commit_maintenance(
            resources=_resources(client, node, slot), starts_at=starts, ends_at=ends, reason=reason,
            allocations=allocations.value, reservations=reservations.value, task=order,
        )  # fmt: skip
        show_one(session, made, SHOWN)


@command(app, "list")
def list_windows(
    session: Session, state: Annotated[State | None, typer.Option(help="only these, for example scheduled")] = None
) -> None:
    """List windows in the order of their commits."""
    with session.client() as client:
        found = client.iterate_maintenance(state=None if state is None else state.value)
        show_list(session, found, LISTED, empty="no maintenance windows")


@command(app, "show")
def show(session: Session, window_id: WindowId) -> None:
    """Show one window, and which of its slots an allocation still holds."""
    with session.client() as client:
        show_one(session, client.get_maintenance(window_id), SHOWN)


@command(app, "tasks")
def tasks(session: Session, window_id: WindowId) -> None:
    """What became of the task of a window on each of its nodes."""
    with session.client() as client:
        found = client.get_maintenance(window_id).tasks
    show_list(session, iter(found), TASKS, empty="the window runs no task")


@command(app, "cancel")
def cancel(session: Session, window_id: WindowId) -> None:
    """Cancel a scheduled window."""
    with session.client() as client:
        show_one(session, client.cancel_maintenance(window_id), SHOWN)


@command(app, "end")
def end(session: Session, window_id: WindowId) -> None:
    """End an active window before its time."""
    with session.client() as client:
        show_one(session, client.end_maintenance(window_id), SHOWN)
