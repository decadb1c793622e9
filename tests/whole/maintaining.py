"""The stage of a maintenance window on real parts: four nodes with a plugin, two tenants, and the command line as a process."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier
from typing import Any
from uuid import UUID

from berth.client import Allocation, BerthError, Node, ResourceBusy
from berth.client.maintenance import MaintenanceConflict, MaintenanceWindow
from berth.client.reservation_models import Reservation
from tests.crashes.stage import Stage
from tests.support.waiting import wait_for
from tests.support.whole_stack import Tenant

PLUGIN = "firmware"
TASK_SECONDS = 30
SECONDS_MIN = 180
"""Twice what a window with this task needs: it may be committed after its start, and its nodes wait for their units."""
LEAD_SECONDS = 12
"""From the plan to the start of the window. Nothing that is asserted before the start is another after it."""
HOLDER = "story"
_CLAIMS = """
select id, node_id::text, owner_kind, owner_id::text, units::text, during::text, booked, occupied, fence, closed_at from claims
order by id
"""
_FIT = "select id::text, free_mask, placement_rank from nodes order by id"
_EVENTS = "select event_type from log where subject = %s order by version"
_PLANNED = """
select count(*) from claims c join maintenance_units u on u.window_id = c.owner_id and u.node_id = c.node_id
where c.owner_id = %s and c.closed_at is null and u.planned && c.units
"""
_CLAIMED = """
select n.name, sum(upper(part) - lower(part))::int from claims c join nodes n on n.id = c.node_id, unnest(c.units) part
where c.owner_id = %s and c.owner_kind = 'maintenance' and c.closed_at is null and c.booked group by n.name order by n.name
"""
_SOONER = """
update maintenance_windows set (ends_at, waits_until) = (select s, s from (select clock_timestamp() as s) n) where id = %s
"""


def install_plugin(directory: Path) -> Path:
    """A folder of maintenance plugins with one, which notes in the folder for which slots it ran."""
    directory.mkdir(parents=True)
    plugin = directory / PLUGIN
    plugin.write_text(
        f'#!/bin/sh\necho "$MAINTENANCE_SLOTS" >> {directory}/runs\n'
        """echo '{"outcome": "completed", "evidence": "BIOS 1.2"}'\n"""
    )
    plugin.chmod(0o755)
    return directory


@dataclass
class Story:
    """What a test plays with: the stack, the window's times, and its nodes (`busy` has an allocation, `idle` has none)."""

    stage: Stage
    plugins: Path
    tenant: Tenant
    other: Tenant
    seconds: int
    starts_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    busy, idle, neighbour = "eu-1-slice-1", "us-1-slice-1", "eu-1-slice-2"

    @property
    def ends_at(self) -> datetime:
        """When the window is over."""
        return self.starts_at + timedelta(seconds=self.seconds)

    def schedule(self) -> None:
        """From now on the window is one that begins soon."""
        self.starts_at = datetime.now(UTC) + timedelta(seconds=LEAD_SECONDS)

    def node(self, name: str) -> Node:
        """A node of the stack, with its slots."""
        return self.stage.admin.get_node(name)

    def slot(self, name: str, index: int) -> str:
        """A slot as a resource."""
        return f"slot:{self.node(name).id}:{index}"

    def berth(self, line: str, refused: str | None = None) -> Any:
        """What `berth maintenance` prints for programs, in its own process. `refused`: the error, whose code is this one."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("BERTH_")}
        environment |= {
            "BERTH_API_URL": self.stage.stack.endpoints.api_url,
            "BERTH_API_KEY": self.stage.stack.admin_key,
        }
        command = [sys.executable, "-m", "berth.cli", "maintenance", *shlex.split(line), "--output", "json"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        if refused is not None:
            error = json.loads(done.stdout)["error"]
            assert (done.returncode, error["code"]) == (1, refused), error
            return error
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    @property
    def span(self) -> str:
        """The nodes and times of the window as options of the command line."""
        return f"--nodes {self.busy},{self.idle} --starts-at {self.starts_at.isoformat()} --ends-at {self.ends_at.isoformat()}"

    @contextmanager
    def without(self, name: str) -> Iterator[None]:
        """In the block the node is cordoned, so that what is asked for is placed elsewhere."""
        self.stage.admin.cordon_node(self.node(name).id)
        try:
            yield
        finally:
            self.stage.admin.uncordon_node(self.node(name).id)

    def allocation_on(self, name: str, gpus: int, region: str) -> Allocation:
        """An active allocation without an end; the only node that has room is `name`."""
        made = self.tenant.wait(self.tenant.create(gpus=gpus, region=region), "active")
        assert made.slots is not None
        held = [slot.index for slot in self.node(name).slots or () if slot.holder == made.allocation_id]
        assert held == list(made.slots), f"it is on another node than {name}"
        return made

    def reserve(self, gpus: int) -> Reservation:
        """A confirmed window of a SKU in eu-1, which the maintenance window would overlap."""
        client = self.other.client
        held = client.create_reservation(
            holder_id=HOLDER, sku="h100.slice", gpus=gpus, region="eu-1", starts_at=self.starts_at + timedelta(seconds=10),
            ends_at=self.starts_at + timedelta(hours=1),
        )  # fmt: skip
        return client.confirm_reservation(held.reservation_id, holder_id=HOLDER)

    def hold(self, resource: str, later: timedelta = timedelta(0)) -> Reservation:
        """A hold of a named resource as long as the maintenance window, or so much later."""
        starts_at, ends_at = self.starts_at + later, self.ends_at + later
        return self.other.client.create_reservation(
            holder_id=HOLDER, resources=[resource], starts_at=starts_at, ends_at=ends_at, ttl_seconds=300
        )

    def free(self, hold: Reservation) -> None:
        """Cancel it."""
        self.other.client.cancel_reservation(hold.reservation_id, holder_id=HOLDER)

    def claims(self) -> list[tuple[object, ...]]:
        """Every claim, every node's fit, and the number of windows, as they are in the database."""
        execute = self.stage.execute
        return [*execute(_CLAIMS), *execute(_FIT), *execute("select count(*) from maintenance_windows")]

    def claimed(self, window_id: UUID) -> dict[str, int]:
        """How many units of each node the window has a right to."""
        return {str(name): int(str(count)) for name, count in self.stage.execute(_CLAIMED, window_id)}

    def claims_of_planned(self, window_id: UUID) -> int:
        """How many claims of the window cover a unit that is planned."""
        return int(str(self.stage.execute(_PLANNED, window_id)[0][0]))

    def available(self, region: str) -> tuple[int | None, datetime | None]:
        """How many single GPUs can be had throughout the window, and from when on one can for as long."""
        (found,) = self.tenant.client.iterate_availability(
            sku="h100.slice", region=region, gpus=1, starts_at=self.starts_at, ends_at=self.ends_at
        )
        return found.available, found.earliest_at

    def free_now(self, region: str) -> int:
        """How many GPUs of the region an open-ended create could have now."""
        (found,) = self.tenant.client.iterate_availability(sku="h100.slice", region=region)
        return found.free_gpus

    def races(self, rounds: int) -> list[set[str]]:
        """How a hold and a window of one slot, sent at once, ended in each round: `made`, or the code; what is made is undone."""
        slot, later = self.slot(self.idle, 7), timedelta(hours=10)

        def window() -> MaintenanceWindow:
            starts_at, ends_at = self.starts_at + later, self.ends_at + later
            return self.stage.admin.commit_maintenance(
                resources=[slot], starts_at=starts_at, ends_at=ends_at, reason="race"
            )

        ended = []
        with ThreadPoolExecutor(2) as hands:
            for _ in range(rounds):
                start = Barrier(2)
                rivals: Sequence[Callable[[], Any]] = (lambda: self.hold(slot, later), window)
                both = [one.result() for one in [hands.submit(_after, start, act) for act in rivals]]
                ended.append({one.code if isinstance(one, BerthError) else "made" for one in both})
                self._undo(both)
        return ended

    def _undo(self, made: list[Any]) -> None:
        for one in made:
            if isinstance(one, MaintenanceWindow):
                self.stage.admin.cancel_maintenance(one.window_id)
            elif isinstance(one, Reservation):
                self.free(one)

    def events(self, subject: str, *steps: str) -> None:
        """Return when exactly these events of the subject are in the log."""
        wait_for(
            lambda: self.stage.execute(_EVENTS, subject) == [(step,) for step in steps], f"the events of {subject}"
        )

    def runs(self) -> list[str]:
        """For which slots the plugin ran, once for each run."""
        path = self.plugins / "runs"
        return path.read_text().splitlines() if path.exists() else []

    def tasks(self, window_id: UUID) -> dict[str, Any]:
        """What `berth maintenance tasks` shows of each node, by its name."""
        names = {str(node.id): node.name for node in map(self.node, (self.busy, self.idle))}
        return {names[one["node_id"]]: one for one in self.berth(f"tasks {window_id}")["items"]}

    def await_completed(self, window_id: UUID, name: str) -> None:
        """The task of the window on the node has completed."""
        node_id = self.node(name).id

        def completed() -> bool:
            tasks = self.stage.admin.get_maintenance(window_id).tasks
            return [one.state for one in tasks if one.node_id == node_id] == ["completed"]

        wait_for(completed, f"the task of the window on {name} has completed")

    def await_end(self, window_id: UUID, *, sooner: bool) -> None:
        """The window ends by itself. `sooner`: as if the time had come; its claims keep theirs, which no command changes."""
        if sooner:
            self.stage.execute(_SOONER, window_id)
        wait_for(
            lambda: self.stage.admin.get_maintenance(window_id).state == "ended",
            "the window ends by itself", SECONDS_MIN + 60,
        )  # fmt: skip


def _after(start: Barrier, act: Callable[[], Any]) -> Any:
    start.wait()
    try:
        return act()
    except (ResourceBusy, MaintenanceConflict) as refusal:
        return refusal
