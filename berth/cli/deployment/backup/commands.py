"""`berth backup`: base backups, the WAL stream, proof by a restore, and the escrow of key files."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from berth.cli.endings import FAILED, UNREACHABLE, Refused
from berth.cli.session import Session, command
from berth.cli.times import moment

if TYPE_CHECKING:
    from berth.cli.deployment.backup.catalogue import Listed
    from berth.cli.deployment.backup.directory import BackupDirectory
    from berth.cli.deployment.backup.verifying import Result

app = typer.Typer(
    no_args_is_help=True, help="Back up PostgreSQL and the key files, and prove that both can be restored."
)
DirectoryOption = Annotated[Path | None, typer.Option("--directory", help="backup directory [env: BERTH_BACKUP_DIR]")]
ROWS_SHOWN = 5


@command(app, "run")
def run(session: Session, directory: DirectoryOption = None) -> None:
    """Take one base backup, check it, and delete what retention lets go. For a timer; safe to repeat and to interrupt."""
    # psycopg, for this command alone: start-up stays light for all others.
    from berth.cli.deployment.backup.base_backup import run_backup
    from berth.cli.deployment.backup.retention import Kept

    settings = session.settings
    with _named():
        done = run_backup(
            _directory(session, directory), _database_url(session), settings.backup_programs_dir,
            Kept(settings.backup_keep_count, settings.backup_keep_days),
        )  # fmt: skip
    if session.json:
        session.console.print_json(data=asdict(done))
        return
    removed = done.removed
    kept = (
        "retention waits for the next run: `berth backup verify` is running"
        if removed is None
        else f"{len(removed.backups)} backups and {removed.segments} WAL segments deleted"
    )
    session.console.print(
        f"backup {done.backup.name}: {done.backup.bytes >> 20} MiB, complete and checked; {kept}",
        markup=False,
        soft_wrap=True,
    )


@command(app, "stream")
def stream(
    session: Session,
    directory: DirectoryOption = None,
    sample_seconds: Annotated[float, typer.Option(min=0.05, max=30, help="how often the lag is measured")] = 5.0,
) -> None:
    """Stream WAL into the backup directory until SIGTERM or Ctrl-C. Health and metrics are on BERTH_METRICS_PORT."""
    # As above.
    from prometheus_client import disable_created_metrics

    from berth.cli.deployment.backup.streaming import Streamer, StreamOptions
    from berth.process.health_server import CannotListen
    from berth.process.limits.open_files import raise_open_files
    from berth.process.logs import configure_logging

    configure_logging()
    raise_open_files()
    disable_created_metrics()  # type: ignore[no-untyped-call]  # unused series
    settings = session.settings
    options = StreamOptions(
        _database_url(session), settings.backup_slot, settings.backup_programs_dir, settings.metrics_host,
        settings.metrics_port, sample_seconds,
    )  # fmt: skip
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    with _named():
        try:
            Streamer(_directory(session, directory), options, stop).run()
        except CannotListen as problem:
            raise Refused(str(problem), code="cannot_listen") from problem


@command(app, "list")
def list_all(session: Session, directory: DirectoryOption = None) -> None:
    """List the complete base backups, newest first, with the last proof of each. Only reads."""
    # As above.
    from berth.cli.deployment.backup.catalogue import list_backups

    with _named():
        listed = list_backups(_directory(session, directory))
    if session.json:
        session.console.print_json(
            data=[{**asdict(one.backup), "result": one.result, "wal_gap": one.wal_gap} for one in listed]
        )
        return
    for one in listed:
        session.console.print(_line(one), markup=False, soft_wrap=True)
    if not listed:
        session.console.print("no backup yet; `berth backup run` takes one", markup=False)


@command(app, "verify")
def verify(
    session: Session,
    directory: DirectoryOption = None,
    backup: Annotated[str | None, typer.Option("--backup", help="name of the backup; default: the newest")] = None,
    at: Annotated[str | None, typer.Option("--at", help="restore up to this time; default: all WAL")] = None,
    database: Annotated[
        str | None, typer.Option("--database", help="database of Berth; default: as in the address")
    ] = None,
    scratch: Annotated[
        Path | None, typer.Option("--scratch", help="where to restore to [env: BERTH_BACKUP_SCRATCH_DIR]")
    ] = None,
    timeout: Annotated[float, typer.Option("--timeout", min=1, help="seconds that the recovery may take")] = 3_600.0,
) -> None:
    """Prove a backup: restore it into a scratch server, check the promises, count the rows. Exit code 1: it is not right."""
    # As above; and the checks, which load the orchestrator.
    from berth.cli.deployment.backup.verifying import Asked, verify_backup

    settings = session.settings
    with _named(), session.errors.status("restoring into a scratch server"):
        place = _directory(session, directory)
        known = settings.database_url or session.stack.database_url
        name = database or (known and urlsplit(known).path.removeprefix("/")) or "berth"
        result = verify_backup(
            place,
            Asked(
                backup, moment(at, "--at"), name, scratch or settings.backup_scratch_dir or place.path / "scratch",
                settings.backup_programs_dir, timeout,
            ),
            settings,
        )  # fmt: skip
    if session.json:
        session.console.print_json(data=asdict(result))
        if not result.ok:
            raise typer.Exit(FAILED)
        return
    _print_result(session, result)
    if not result.ok:
        raise Refused(result.detail or "the backup is not right", code=result.code or "restore_failed")


@command(app, "restore")
def restore(
    session: Session,
    data: Annotated[Path, typer.Option("--data", help="PostgreSQL's data directory, new or empty")],
    directory: DirectoryOption = None,
    backup: Annotated[str | None, typer.Option("--backup", help="name of the backup; default: the newest")] = None,
    at: Annotated[str | None, typer.Option("--at", help="recover up to this time; default: all WAL")] = None,
    owner: Annotated[
        str | None, typer.Option("--owner", help="system user that PostgreSQL runs as; needed as root")
    ] = None,
) -> None:
    """Copy a backup and its WAL into a new data directory. PostgreSQL recovers it up to the moment when it starts there."""
    # As above.
    from berth.cli.deployment.backup.restoring import restore_backup

    with _named(), session.errors.status("copying"):
        done = restore_backup(_directory(session, directory), data, moment(at, "--at"), backup, owner)
    if session.json:
        session.console.print_json(data=asdict(done))
        return
    gap = "; streamed WAL behind it has a gap, so that the recovery ends there" if done.wal_gap else ""
    session.console.print(
        f"{done.data} has backup {done.backup} and {done.wal_segments} WAL segments{gap}. Start PostgreSQL on it: it recovers"
        f" up to {done.target or 'the end of the WAL'} and goes on as a primary on a new timeline. Then go on with"
        " `berth migrate` and `berth restore begin`",
        markup=False,
        soft_wrap=True,
    )


@command(app, "keys")
def keys(
    session: Session,
    to: Annotated[str, typer.Option("--to", help="recovery public key")],
    directory: DirectoryOption = None,
    secrets: Annotated[
        Path | None, typer.Option("--secrets", help="directory of the key files [env: BERTH_BACKUP_SECRETS_DIR]")
    ] = None,
) -> None:
    """Encrypt the key files to a recovery public key, into the backup directory. Run it after each change of a key."""
    # cryptography, for this command alone: start-up stays light for all others.
    from berth.cli.deployment.backup import escrow
    from berth.cli.deployment.backup.key_files import find_key_files

    with _named():
        recipient = escrow.read_public(to)
        files = find_key_files(secrets_directory(session, secrets))
        path = escrow.store(_directory(session, directory), files, recipient)
    if session.json:
        session.console.print_json(data={"escrow": str(path), "files": sorted(files)})
        return
    session.console.print(f"{len(files)} key files are in {path}", markup=False, soft_wrap=True)


@command(app, "site-key")
def site_key(
    session: Session,
    private: Annotated[
        Path, typer.Argument(metavar="FILE", help="private key that `berth site new-recovery-key` wrote")
    ],
    to: Annotated[str, typer.Option("--to", help="recovery public key of the backups")],
    into: Annotated[Path, typer.Option("--into", help="directory for the escrow")] = Path(),
) -> None:
    """Encrypt the recovery key of a site, where its file is; carry the result into `keys` of the backup directory."""
    # As above.
    from berth.cli.deployment.backup import escrow
    from berth.cli.deployment.backup.site_keys import write_escrow

    with _named():
        path = write_escrow(private, escrow.read_public(to), into)
    if session.json:
        session.console.print_json(data={"escrow": str(path)})
        return
    session.console.print(f"{path}: copy it into the directory keys of the backups", markup=False, soft_wrap=True)


@command(app, "open-keys")
def open_keys(
    session: Session,
    escrow_file: Annotated[Path, typer.Argument(metavar="ESCROW", help="file that `berth backup keys` wrote")],
    key: Annotated[Path, typer.Option("--key", help="file of the recovery private key")],
    into: Annotated[Path, typer.Option("--into", help="directory for the key files, new or empty")],
) -> None:
    """Decrypt escrowed key files, on the machine that has the recovery private key."""
    # As above.
    from berth.cli.deployment.backup import escrow

    with _named():
        names = escrow.open_into(escrow_file, escrow.read_private(key), into)
    if session.json:
        session.console.print_json(data={"into": str(into), "files": names})
        return
    session.console.print(f"{len(names)} key files are in {into}: {', '.join(names)}", markup=False, soft_wrap=True)


@command(app, "new-recovery-key")
def new_recovery_key(
    session: Session,
    private: Annotated[Path, typer.Argument(metavar="FILE", help="new file for the private key; keep it offline")],
) -> None:
    """Make a recovery key pair, on a machine that is no server: print the public key, write the private one to a file."""
    # As above.
    from berth.cli.deployment.backup import escrow

    with _named():
        public = escrow.new_key(private)
    if session.json:
        session.console.print_json(data={"public_key": public, "private_key_file": str(private)})
        return
    session.console.print(public, markup=False, soft_wrap=True)


def secrets_directory(session: Session, named: Path | None) -> Path:
    """The directory of the key files: as named, as set, or the local stack's."""
    # As above.
    from berth.cli.known_stack import SECRETS_DIRECTORY

    return named or session.settings.backup_secrets_dir or session.state_dir / SECRETS_DIRECTORY


def _directory(session: Session, named: Path | None) -> BackupDirectory:
    # As above.
    from berth.cli.deployment.backup.directory import BackupDirectory

    found = named or session.settings.backup_dir
    if found is None:
        raise Refused(
            "no backup directory is known: set BERTH_BACKUP_DIR or name --directory", code="no_backup_directory"
        )
    return BackupDirectory(found)


def _database_url(session: Session) -> str:
    found = session.settings.backup_database_url or session.stack.backup_database_url
    if found is None:
        raise Refused(
            f"no database is known: set BERTH_BACKUP_DATABASE_URL or name a --state-dir (looked in {session.state_dir})",
            code="no_database",
            exit_code=UNREACHABLE,
        )
    return found


def _line(one: Listed) -> str:
    """One backup for a person."""
    result = one.result
    proof = "never verified"
    if result is not None:
        proof = f"verified at {result['verified_at']}" if one.is_verified else f"NOT right: {result.get('detail')}"
    gap = "; the WAL behind it has a gap" if one.wal_gap else ""
    return f"{one.backup.name}  {one.backup.bytes >> 20} MiB  complete at {one.backup.ended_at}  {proof}{gap}"


def _print_result(session: Session, result: Result) -> None:
    rows = sorted(result.rows.items(), key=lambda item: -item[1])
    session.console.print(
        f"{result.backup} restored to {result.restored_to or 'its end'} with {result.wal_segments} WAL segments"
        f" in {result.seconds} s: {sum(result.rows.values())} rows in {len(rows)} tables",
        markup=False,
        soft_wrap=True,
    )
    for name, count in rows[:ROWS_SHOWN]:
        session.console.print(f"    {name} {count}", markup=False)
    for check in result.checks:
        if not check["kept"]:
            session.console.print(
                f"    VIOLATED {check['promise']} {check['title']}", style="red", markup=False, soft_wrap=True
            )


@contextmanager
def _named() -> Iterator[None]:
    """Turn a problem of backups into the command's refusal."""
    # As above.
    from berth.cli.deployment.backup.problems import BackupProblem

    try:
        yield
    except BackupProblem as problem:
        raise Refused(str(problem), code=problem.code, exit_code=problem.exit_code) from problem
