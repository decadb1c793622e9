"""The cluster of `berth up --ha`: start so that the last primary leads again, where it is, and an orderly end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from berth.local.high_availability.configuration import LAG_BYTES_MAX, MemberPorts, Passwords
from berth.local.high_availability.layout import CLUSTER_DIRECTORY
from berth.local.high_availability.member import Member
from berth.local.high_availability.postmasters import end_postmasters, last_primary, start_postmaster
from berth.local.secret_files import cluster_passwords
from berth.local.servers import ServerProblem, create_backup_role, create_database, create_roles, require_free_port
from berth.local.state import Ports, StateDirectory
from berth.process.json_objects import JsonMapping
from migrations.roles import BACKUP_ROLE, Role

NAMES = ("a", "b", "c")
BACKUP_SLOT = "berth_backup"
"""The default of `BERTH_BACKUP_SLOT`."""
FORMED_SECONDS_MAX = 90.0
BOTH_SECONDS_MAX = 45.0
"""How long a start waits for the second standby; one is enough for commits."""
SETTING_SECONDS_MAX = 30.0
_CONFIRMING = """
    select count(*) from pg_stat_replication
     where sync_state in ('quorum', 'sync') and state = 'streaming' and current_setting('synchronous_standby_names') like '%ANY%'
"""


@dataclass(frozen=True)
class MemberStatus:
    """What Patroni says of a member. `lag_bytes`: None for the primary, and where it is not known."""

    name: str
    role: str
    state: str
    timeline: int | None
    lag_bytes: int | None

    def __str__(self) -> str:
        """For a person: `primary, timeline 3`, `quorum standby`, `standby, starting`."""
        if self.role == "leader":
            return f"primary, timeline {self.timeline or '?'}"
        words = [self.role.replace("_", " ").replace("replica", "standby")]
        words += [] if self.state in ("running", "streaming") else [self.state]
        words += ["more than 1 MB behind"] if (self.lag_bytes or 0) > LAG_BYTES_MAX else []
        return ", ".join(words)


class LocalCluster:
    """Three members under `root` on the loopback address."""

    def __init__(self, root: Path, ports: Mapping[str, MemberPorts], passwords: Passwords) -> None:
        self.root = root
        self._passwords = passwords
        self.members = [Member(name, root, ports, passwords, self.stop) for name in NAMES]
        self._resumed: Member | None = None

    def prepare(self) -> None:
        """Make the directories, and end servers that an earlier stack left. Raises `ServerProblem`."""
        self.root.mkdir(mode=0o755, parents=True, exist_ok=True)
        for member in self.members:
            member.prepare()
        end_leftover_servers(self.root)
        for member in self.members:
            require_free_port(member.ports.postgres, member.name)
            member.log.parent.mkdir(parents=True, exist_ok=True)
        last = last_primary([member.data for member in self.members])
        self._resumed = next((member for member in self.members if member.data == last), None)
        if self._resumed is not None:
            start_postmaster(self._resumed.data, self._resumed.log, self._resumed.user)
        for member in self.members:
            member.configure(may_lead=self._resumed in (None, member))

    def wait_formed(self) -> None:
        """Return when a primary accepts writes that a standby confirms. Raises `ServerProblem` after 90 s."""
        resumed = self._resumed
        if resumed is not None:
            self._wait(lambda: self.primary() is resumed, FORMED_SECONDS_MAX, "take the lead again")
            for member in self.members:
                member.configure(may_lead=True)
                member.reload()
            self._resumed = None
        self._wait(lambda: self.confirmed_primary(1) is not None, FORMED_SECONDS_MAX, "form")
        deadline = time.monotonic() + BOTH_SECONDS_MAX
        while self.confirmed_primary(len(self.members) - 1) is None and time.monotonic() < deadline:
            time.sleep(0.1)

    def make_databases(self, passwords: Mapping[Role, str]) -> dict[Role, str]:
        """Make the database `berth` and the roles; return the connection URL of each role."""
        create_database(self.url("postgres"))
        create_roles(self.url("postgres"), passwords)
        return {role: self.url("berth", role, password) for role, password in passwords.items()}

    def make_backup_role(self, password: str) -> str:
        """Make the role of `berth backup`, or give it this password anew; return the address of all members as this role."""
        create_backup_role(self.url("postgres"), password)
        return self.url("postgres", BACKUP_ROLE, password)

    def keep_backup_slot(self, *, is_kept: bool) -> None:
        """Let Patroni keep the slot of `berth backup stream` on each member, so that a promoted one has its WAL, or drop it.

        Raises `ServerProblem` if no member takes the setting within 30 s: Patroni refuses while its store elects.
        """
        # No other slot is set here. Patroni takes a slot that is null for one to keep, where none was set before.
        settings = {"slots": {BACKUP_SLOT: {"type": "physical"}} if is_kept else None}
        self._wait(
            lambda: any(member.change(settings) for member in self.members), SETTING_SECONDS_MAX, "take a setting"
        )

    def url(self, database: str = "berth", user: str = "postgres", password: str | None = None) -> str:
        """The address that names every member; a client takes the one that accepts writes."""
        hosts = ",".join("127.0.0.1" for _ in self.members)
        ports = ",".join(str(member.ports.postgres) for member in self.members)
        parameters = f"host={hosts}&port={ports}&target_session_attrs=read-write"
        return f"postgresql://{user}:{password or self._passwords.superuser}@/{database}?{parameters}"

    @staticmethod
    def standby_url(urls: Mapping[Role, str]) -> str:
        """The address as the public API's role where a client takes any standby."""
        return f"{urls[Role.PUBLIC_API].replace('=read-write', '=standby')}&load_balance_hosts=random"

    def statuses(self) -> dict[str, MemberStatus]:
        """What Patroni says of each member, by the member's name; empty if no member answers.

        Of several views the one with the newest timeline: a member that was cut off believes for a moment that it leads.
        """
        views = [[_status(entry) for entry in member.cluster_view()] for member in self.members]
        newest = max(views, key=lambda view: max((s.timeline or 0 for s in view if s.role == "leader"), default=-1))
        return {f"postgres-{status.name}": status for status in newest}

    def primary(self) -> Member | None:
        """The member that leads, as far as Patroni says."""
        statuses = self.statuses()
        return next((m for m in self.members if m.name in statuses and statuses[m.name].role == "leader"), None)

    def stop(self) -> None:
        """End every Patroni, then PostgreSQL in order. No member is promoted, so the next start is on the same timeline."""
        for member in self.members:
            member.kill_patroni()
        end_postmasters([member.data for member in self.members])

    def confirmed_primary(self, standbys: int) -> Member | None:
        """The primary, if at least so many standbys confirm its commits now; None otherwise. Of the servers, not of Patroni."""
        import psycopg

        try:
            with psycopg.connect(self.url("postgres"), autocommit=True, connect_timeout=2) as connection:
                row = connection.execute(_CONFIRMING).fetchone()
                port = connection.info.port
        except psycopg.Error:
            return None
        if row is None or row[0] < standbys:
            return None
        return next(member for member in self.members if member.ports.postgres == port)

    def _wait(self, check: Callable[[], bool], seconds: float, what: str) -> None:
        deadline = time.monotonic() + seconds
        while not check():
            ended = next((m for m in self.members if m.process is None or m.process.poll() is not None), None)
            if ended is not None:
                raise ServerProblem(f"{ended.name} ended at start; see {ended.log}")
            if time.monotonic() > deadline:
                raise ServerProblem(
                    f"the PostgreSQL cluster did not {what} within {seconds:.0f} s; see {self.members[0].log}"
                )
            time.sleep(0.1)


def cluster_of(state: StateDirectory, ports: Ports) -> LocalCluster:
    """The cluster of a state directory, with its ports and passwords, which are made where they are missing."""
    found = {
        name: MemberPorts(*(ports.of(f"{kind}-{name}") for kind in ("postgres", "patroni", "raft"))) for name in NAMES
    }
    return LocalCluster(state.path / CLUSTER_DIRECTORY, found, cluster_passwords(state.secrets))


def end_leftover_servers(root: Path) -> None:
    """End PostgreSQL of the members below `root` in order, where their Patroni has ended."""
    end_postmasters([root / name / "data" for name in NAMES])


def _status(entry: JsonMapping) -> MemberStatus:
    lag = entry.get("lag")
    return MemberStatus(
        name=str(entry.get("name")),
        role=str(entry.get("role")),
        state=str(entry.get("state")),
        timeline=entry.get("timeline"),
        lag_bytes=lag if isinstance(lag, int) else None,
    )


class StatusWatch:
    """Reads the members' statuses beside the caller, so that a member that does not answer delays no restart of a part.

    Without a cluster there is nothing to read.
    """

    def __init__(self, cluster: LocalCluster | None, pause_seconds: float = 2.0) -> None:
        self._cluster = cluster
        self._pause_seconds = pause_seconds
        self._stopping = threading.Event()
        self._found: dict[str, MemberStatus] = {}
        self._thread = threading.Thread(target=self._read, name="cluster-status", daemon=True)

    def __enter__(self) -> Self:
        """Begin to read."""
        if self._cluster is not None:
            self._thread.start()
        return self

    def __exit__(self, *ending: object) -> None:
        """End the reading."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def take(self) -> dict[str, MemberStatus]:
        """What was read last; empty if nothing is known."""
        return self._found

    def _read(self) -> None:
        assert self._cluster is not None
        while not self._stopping.wait(self._pause_seconds):
            self._found = self._cluster.statuses()
