"""The stage of the drill: a stack with backups, what its nodes run at each instant, and the commands of the page."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import dict_row

from berth.local.stack import Stack
from tests.berth.commands import environment
from tests.support.waiting import PACE_SECONDS
from tests.support.whole_stack import Whole

PAGE = Path(__file__).parents[2] / "docs/how-to/restore-from-backup.md"
_BLOCK = re.compile(r"<!-- drill (?P<name>[a-z-]+) -->\n+(?P<indent> *)```sh\n(?P<text>.*?)\n *```", re.DOTALL)
COMMAND_SECONDS_MAX = 120.0
# What the inventories name that were gathered since processes serve again.
_REPORTED = """
select h.allocation_id from nodes n join restores r on n.inventory_after > r.closed_at
cross join lateral jsonb_to_recordset(n.inventory) as h(allocation_id uuid)
"""


def page_blocks() -> dict[str, str]:
    """The commands of the page that the drill runs, by name, in the page's order."""
    found = {}
    for match in _BLOCK.finditer(PAGE.read_text()):
        lines = match["text"].splitlines()
        found[match["name"]] = "\n".join(line.removeprefix(match["indent"]) for line in lines)
    return found


@dataclass(frozen=True)
class Guest:
    """A guest that runs: its node, its allocation, its slots."""

    node: str
    allocation_id: UUID
    slots: tuple[int, ...]


@dataclass
class Watch:
    """Reads the disks of the nodes again and again. `double`: slots that two guests used in one instant."""

    directories: dict[str, Path]
    double: set[tuple[str, int]] = field(default_factory=set)
    seen: set[Guest] = field(default_factory=set)
    looks: int = 0

    def look(self) -> set[Guest]:
        """The guests that run now."""
        guests = {guest for name, directory in self.directories.items() for guest in _running(name, directory)}
        users: dict[tuple[str, int], set[UUID]] = defaultdict(set)
        for guest in guests:
            for slot in guest.slots:
                users[guest.node, slot].add(guest.allocation_id)
        self.double |= {slot for slot, used_by in users.items() if len(used_by) > 1}
        self.seen |= guests
        self.looks += 1
        return guests


@contextmanager
def looking(look: Callable[[], object]) -> Iterator[None]:
    """Look again and again until the end of the context; what a look raises is raised then."""
    enough = threading.Event()

    def look_on() -> None:
        while not enough.wait(PACE_SECONDS):
            look()

    with ThreadPoolExecutor(1) as threads:
        watcher = threads.submit(look_on)
        try:
            yield
        finally:
            enough.set()
            watcher.result()


class FirstSweep:
    """Checks that what runs and is unknown is recorded by the first sweep that begins after its node's inventory.

    By the database's stamps and the worker's count of sweeps, not by the clock of this machine: sweeps are 15 s apart, so what
    they record is unknown for less than 30 s. `late`: allocations that a whole sweep left unrecorded.
    """

    def __init__(self, drill: Drill, unknown: set[UUID]) -> None:
        self._drill = drill
        self._unknown = unknown
        self._sweeps_at_inventory: dict[UUID, float] = {}
        self.recorded: set[UUID] = set()
        self.late: set[UUID] = set()

    def look(self) -> None:
        """Compare what is recorded with the sweeps that ended before; sweeps that failed do not count."""
        sweeps = self._sweeps()
        rows = self._drill.rows("select node_id, allocation_id from node_orphans")
        self.recorded = {row["allocation_id"] for row in rows}
        for allocation, sweeps_at_inventory in self._sweeps_at_inventory.items():
            # The one that ran when the inventory arrived may have begun before it.
            if sweeps >= sweeps_at_inventory + 2 and allocation not in self.recorded:
                self.late.add(allocation)
        for row in self._drill.rows(_REPORTED):
            if row["allocation_id"] in self._unknown:
                self._sweeps_at_inventory.setdefault(row["allocation_id"], math.inf)
        for allocation, found in self._sweeps_at_inventory.items():
            # Counted once the inventory was seen: sweeps that ended before it do not count.
            self._sweeps_at_inventory[allocation] = min(found, self._sweeps())

    def _sweeps(self) -> float:
        ended = self._drill.whole.gauge('berth_worker_sweep_seconds_count{sweeper="inventories"}')
        return ended - self._drill.whole.gauge('berth_worker_sweep_failures_total{sweeper="inventories"}')


def _running(name: str, directory: Path) -> Iterator[Guest]:
    for folder in (directory / "sandbox" / "allocations").glob("*"):
        try:
            found = folder / "record.json"
            record = json.loads((found if found.exists() else folder / "record.releasing").read_text())
            state = json.loads((folder / "guest.json").read_text())
            stat = Path(f"/proc/{state['pid']}/stat").read_text()
        except (OSError, ValueError):
            continue  # it is being made or removed, or has ended
        fields = stat.rpartition(")")[2].split()
        if fields[0] != "Z" and int(fields[19]) == state["start_ticks"]:
            yield Guest(name, UUID(record["allocation_id"]), tuple(record["slots"]))


class Drill:
    """The stack that is lost and restored."""

    def __init__(self, stack: Stack, place: Path, backups: Path) -> None:
        self.stack, self.place, self.backups = stack, place, backups
        self.whole = Whole(stack)
        agents = [child.name.removeprefix("agent ") for child in stack._children if child.plan.module == "node_agent"]
        self.watch = Watch({name: stack.state.agent(name) for name in agents})

    def empty_temporal(self) -> None:
        """Temporal starts on an empty store: its workflows are of an interval that is no more."""
        temporal = self.whole.server("temporal")
        temporal.kill()
        shutil.rmtree(temporal.directory)
        temporal.start()

    @property
    def processes(self) -> list[str]:
        """Every process of ours but the agents."""
        return [child.name for child in self.stack._children if child.plan.module != "node_agent"]

    def run(self, block: str, **variables: object) -> str:
        """Run the commands of the page that have this name, as its reader does; return what they print."""
        state = self.stack.state.path
        settings = {"BERTH_STATE_DIR": str(state), "BERTH_BACKUP_DIR": str(self.backups)}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        named = environment(**settings, PATH=path, **{name: str(value) for name, value in variables.items()})
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", page_blocks()[block]],
            env=named, cwd=self.place, capture_output=True, text=True, timeout=COMMAND_SECONDS_MAX,
        )  # fmt: skip
        assert done.returncode == 0, f"{block}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def lose_the_database(self) -> None:
        """Its processes are killed and its data directory is gone."""
        postgres = self.whole.server("postgres")
        postgres.kill()
        shutil.rmtree(postgres.directory)

    def rows(self, query: str, *values: object) -> list[dict[str, Any]]:
        """The rows of a query."""
        with psycopg.connect(self.stack.endpoints.database_url, autocommit=True, row_factory=dict_row) as connection:
            return connection.execute(query.encode(), values).fetchall()

    def row(self, query: str, *values: object) -> dict[str, Any]:
        """The one row of a query."""
        (found,) = self.rows(query, *values)
        return found

    def slots(self, allocation_id: UUID) -> tuple[str, tuple[int, ...]]:
        """Node and slots of an allocation's newest claim, by the rows."""
        found = self.row(
            "select n.name, array_agg(s.slot_index order by 1) as slots from allocations a join claims c on c.id = a.claim_id"
            " join nodes n on n.id = a.node_id join slots s on s.node_id = n.id and c.units @> s.unit where a.id = %s"
            " group by 1",
            allocation_id,
        )
        return found["name"], tuple(found["slots"])
