"""How far the streamed WAL is behind the server: computed by the stream process, stored for `berth doctor`."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass

from berth.cli.deployment.backup.directory import BackupDirectory, read_json, write_whole
from berth.process.json_objects import JsonObject

STATUS = "stream.json"
SAMPLES_MAX = 10_000


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """What the stream process last measured. `at`: seconds since 1970. `code`: why it does not stream, None while it does.

    `lag_bytes` is None while the server does not say how far it is. `gaps`: how often the server no longer had the next segment.
    """

    at: float
    streaming: bool
    lag_bytes: int | None
    lag_seconds: float
    restarts: int
    gaps: int
    slot_keep: str
    code: str | None = None
    detail: str | None = None


class Lag:
    """Since when WAL that the server has is not confirmed by the receiver. Positions in bytes, times in seconds."""

    def __init__(self, now: float) -> None:
        self._unconfirmed: deque[tuple[int, float]] = deque()
        self._last_answer = now

    def sample(self, flushed: int, confirmed: int, now: float) -> None:
        """The server has WAL up to `flushed` on its disk, the receiver up to `confirmed`."""
        self._last_answer = now
        if not self._unconfirmed or flushed > self._unconfirmed[-1][0]:
            # Full, the newest two become one: the age of the oldest stays right.
            since = self._unconfirmed.pop()[1] if len(self._unconfirmed) >= SAMPLES_MAX else now
            self._unconfirmed.append((flushed, since))
        while self._unconfirmed and self._unconfirmed[0][0] <= confirmed:
            self._unconfirmed.popleft()

    def seconds(self, now: float, *, answers: bool) -> float:
        """How old the oldest unconfirmed WAL is, or may be: a server that does not answer may have some since it last did."""
        since = self._unconfirmed[0][1] if self._unconfirmed else now
        return max(now - (since if answers else min(since, self._last_answer)), 0.0)


def write_status(directory: BackupDirectory, status: StreamStatus) -> None:
    """Replace the stored status. Raises OSError."""
    write_whole(directory.path / STATUS, asdict(status))


def read_status(directory: BackupDirectory) -> StreamStatus | None:
    """The stored status; None if there is none or it is damaged. Raises `BackupProblem` if it may not be read."""
    found: JsonObject | None = read_json(directory.path / STATUS)
    try:
        return None if found is None else StreamStatus(**found)
    except TypeError:
        return None
