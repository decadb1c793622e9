"""`berth backup stream`: supervises pg_receivewal, so that WAL reaches the backup directory as it is written.

One process, one slot. The receiver is started again with growing pauses; a segment that the server no longer has begins a new
run of the stream, and the status says that base backups of before it reach no further than the gap.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge

from berth.cli.deployment.backup import programs
from berth.cli.deployment.backup.directory import STREAM_LOCK, BackupDirectory, of_system
from berth.cli.deployment.backup.problems import BackupProblem
from berth.cli.deployment.backup.replication import Server, ask, create_slot, drop_slot
from berth.cli.deployment.backup.stream_status import Lag, StreamStatus, write_status
from berth.cli.deployment.backup.wal import segment_of
from berth.process.backoff import Backoff
from berth.process.durable_directories import sync_directory
from berth.process.health_server import serve_health
from berth.process.json_objects import JsonObject

STOP_SECONDS_MAX = 10.0
STALLED_SECONDS = 30.0
"""A receiver that confirms nothing for so long although there is WAL is started again: its server may be frozen or deposed."""
ERROR_BYTES_MAX = 64 << 10
_LOST = re.compile(
    r"has already been removed|has been invalidated|can no longer (?:access|get changes from) replication slot"
    r"|is ahead of the WAL flush position|is not in this server's history"
)
log = structlog.get_logger("backup")


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """What to stream and how often to measure."""

    url: str
    slot: str
    programs_dir: Path | None
    metrics_host: str
    metrics_port: int | None
    sample_seconds: float = 5.0
    pause_seconds_max: float = 30.0


class Metrics:
    """Of one stream process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.streaming = Gauge("berth_backup_streaming", "Whether WAL is being received.", registry=self.registry)
        self.lag_bytes = Gauge(
            "berth_backup_stream_lag_bytes", "WAL of the server not yet confirmed.", registry=self.registry
        )
        self.lag_seconds = Gauge(
            "berth_backup_stream_lag_seconds", "Age of the oldest such WAL.", registry=self.registry
        )
        self.restarts = Counter(
            "berth_backup_stream_restarts", "Starts of the receiver after its end.", registry=self.registry
        )
        self.gaps = Counter(
            "berth_backup_stream_gaps", "Times that the server lacked the next WAL.", registry=self.registry
        )


class Streamer:
    """Streams into one backup directory until `stop` is set."""

    def __init__(self, directory: BackupDirectory, options: StreamOptions, stop: threading.Event) -> None:
        self._directory = directory
        self._options = options
        self._stop = stop
        self._metrics = Metrics()
        self._lag = Lag(time.monotonic())
        self._status = StreamStatus(time.time(), False, None, 0.0, 0, 0, "", "starting")
        self._restarts = self._gaps = 0

    def run(self) -> None:
        """Stream until stopped. Raises `BackupProblem` if another process streams here, or this is another server's directory."""
        options = self._options
        with (
            self._directory.locked(STREAM_LOCK, "another `berth backup stream` is running") as lock,
            serve_health(options.metrics_host, options.metrics_port, self._metrics.registry, self._state),
        ):
            backoff = Backoff(first_seconds=0.5, most_seconds=options.pause_seconds_max)
            while not self._stop.is_set():
                try:
                    confirmed = self._receive(lock)
                except BackupProblem as problem:
                    if problem.code in ("backup_other_system", "not_backup_directory", "backup_programs_missing"):
                        raise
                    self._failed(problem)
                    confirmed = False
                except OSError as error:
                    self._failed(of_system(error, self._directory.path))
                    confirmed = False
                if confirmed:
                    backoff.reset()
                if not self._stop.wait(backoff.next_seconds()):
                    self._restarts += 1
                    self._metrics.restarts.inc()

    def _state(self) -> JsonObject:
        status = self._status
        return {
            "ok": status.streaming,
            "code": status.code,
            "lag_bytes": status.lag_bytes,
            "lag_seconds": round(status.lag_seconds, 1),
        }

    def _receive(self, lock: int) -> bool:
        """Run the receiver until it ends; whether it confirmed anything meanwhile. Raises `BackupProblem`, OSError."""
        options = self._options
        server = ask(options.url, options.slot)
        self._directory.claim_for(server.system_identifier)
        if not server.slot_exists:
            self._require_no_break(server)
            create_slot(options.url, options.slot)
        _empty_torn(self._run(), server.segment_bytes)
        parameters, environment = programs.without_password(options.url)
        command = [
            programs.program("pg_receivewal", options.programs_dir), f"--dbname={parameters}", f"--directory={self._run()}",
            f"--slot={options.slot}", "--synchronous", "--no-loop", "--no-password", "--status-interval=5",
        ]  # fmt: skip
        with tempfile.TemporaryFile() as error:
            process = programs.start(command, environment, error=error, pass_fds=(lock,))
            try:
                confirmed = self._watch(process)
            finally:
                _end(process)
            error.seek(0)
            said = error.read(ERROR_BYTES_MAX).decode(errors="replace")
        if not self._stop.is_set():
            if _LOST.search(said):
                self._begin_run(said)
            self._failed(programs.problem_of(said, "pg_receivewal"))
        return confirmed

    def _watch(self, process: subprocess.Popen[bytes]) -> bool:
        """Measure until the receiver ends or must be ended; whether it confirmed any WAL that it did not have before."""
        first = last = None
        moved, sampled = time.monotonic(), False
        while process.poll() is None and not self._stop.is_set():
            server = self._measure(streaming=sampled)
            sampled = True
            if server is not None and server.confirmed is not None:
                first = server.confirmed if first is None else first
                if last is None or server.confirmed > last or server.confirmed >= server.flushed:
                    moved = time.monotonic()
                last = server.confirmed
            if time.monotonic() - moved > STALLED_SECONDS:
                log.warning("receiver_stalled", seconds=STALLED_SECONDS)
                break
            self._stop.wait(self._options.sample_seconds)
        return first is not None and last is not None and last > first

    def _measure(self, *, streaming: bool) -> Server | None:
        """Ask the server how far it and the receiver are, and publish it; None if it does not answer.

        `streaming`: whether the receiver has run for a whole sample, which one that is refused does not.
        """
        now = time.monotonic()
        try:
            server = ask(self._options.url, self._options.slot)
        except BackupProblem as problem:
            self._publish(None, self._lag.seconds(time.monotonic(), answers=False), "", problem, streaming=False)
            return None
        confirmed = server.flushed if server.confirmed is None else server.confirmed
        self._lag.sample(server.flushed, confirmed, now)
        lag_bytes = max(server.flushed - confirmed, 0)
        self._publish(lag_bytes, self._lag.seconds(now, answers=True), server.slot_keep, None, streaming=streaming)
        return server

    def _failed(self, problem: BackupProblem) -> None:
        log.warning("not_streaming", code=problem.code, why=str(problem))
        self._publish(None, self._lag.seconds(time.monotonic(), answers=False), "", problem, streaming=False)

    def _publish(
        self,
        lag_bytes: int | None,
        lag_seconds: float,
        slot_keep: str,
        problem: BackupProblem | None,
        *,
        streaming: bool,
    ) -> None:
        self._status = StreamStatus(
            time.time(), streaming, lag_bytes, lag_seconds, self._restarts, self._gaps, slot_keep or self._status.slot_keep,
            problem.code if problem else None, str(problem) if problem else None,
        )  # fmt: skip
        self._metrics.streaming.set(streaming)
        self._metrics.lag_seconds.set(lag_seconds)
        if lag_bytes is not None:
            self._metrics.lag_bytes.set(lag_bytes)
        try:
            write_status(self._directory, self._status)
        except OSError as error:
            log.warning("status_not_written", why=error.strerror)

    def _run(self) -> Path:
        """The folder of the present run of the stream."""
        runs = sorted(entry for entry in self._directory.wal.iterdir() if entry.is_dir())
        return runs[-1] if runs else self._new_run(1)

    def _new_run(self, number: int) -> Path:
        folder = self._directory.wal / f"{number:06d}"
        folder.mkdir(mode=0o700)
        sync_directory(self._directory.wal)
        return folder

    def _require_no_break(self, server: Server) -> None:
        """A slot that is gone kept no WAL: what follows the received WAL may be missing, so a new run begins."""
        segments = [segment_of(path.name, server.segment_bytes) for path in self._run().iterdir()]
        if any(segments):
            self._begin_run("the replication slot is gone")

    def _begin_run(self, why: str) -> None:
        """Go on from where the server still has WAL. Backups of before the gap reach to it; `berth doctor` asks for a new one."""
        if ask(self._options.url, self._options.slot).slot_exists:
            drop_slot(self._options.url, self._options.slot)
        self._gaps += 1
        self._metrics.gaps.inc()
        log.error("wal_gap", why=why.strip().splitlines()[-1])
        self._new_run(int(self._run().name) + 1)


def _empty_torn(run: Path, segment_bytes: int) -> None:
    """Empty what a full disk left of a new segment: the receiver refuses to start over it, and begins an empty one again.

    It holds no WAL: the receiver writes WAL only into a file that has its whole size. The caller holds the stream's lock.
    """
    for path in run.glob("*.partial"):
        size = path.stat().st_size
        if segment_of(path.name, segment_bytes) is not None and size not in (0, segment_bytes):
            log.warning("torn_segment_emptied", file=path.name, bytes=size)
            os.truncate(path, 0)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Let the receiver end in order, then by force."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
