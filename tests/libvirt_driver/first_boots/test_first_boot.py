"""The end of a guest's first boot: what of the guest's words counts, once, over whichever connections and agents it is heard."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from node_agent.drivers.libvirt.channel import (
    CHANNEL_BYTES_MAX,
    LINE_BYTES_MAX,
    LINES_PER_TURN,
    GuestChannel,
    first_boot_of,
)
from node_agent.drivers.libvirt.first_boot import MESSAGES_MAX, FirstBoots
from node_agent.drivers.libvirt.records import GuestDirectory, GuestRecord
from node_agent.wire.first_boot import DETAIL_MAX, FirstBoot, FirstBootStatus
from tests.libvirt_driver.definitions import ALLOCATION, guest
from tests.support.waiting import async_wait_for

NONCE = "5eed"
READY = b"BERTH-READY 5eed\n"
DONE = b"BERTH-USER-DATA 5eed 0 status: done detail: DataSourceNoCloud\n"
FAILED = b"BERTH-USER-DATA 5eed 1 status: error detail: runcmd\n"
PENDING = FirstBoot(status=FirstBootStatus.PENDING)


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ("0 status: done boot_status_code: enabled-by-generator detail: DataSourceNoCloud", FirstBootStatus.DONE),
        ("status: done detail: DataSourceNoCloud", FirstBootStatus.DONE),
        ("2 status: done extended_status: degraded done", FirstBootStatus.DEGRADED),
        ("0 status: done extended_status: degraded done", FirstBootStatus.DEGRADED),
        ("1 status: error detail: Failed loading yaml blob", FirstBootStatus.ERROR),
        ("status: error detail: runcmd", FirstBootStatus.ERROR),
        ("0 status: running", FirstBootStatus.UNKNOWN),
        ("127 sh: cloud-init: not found", FirstBootStatus.UNKNOWN),
        ("", FirstBootStatus.UNKNOWN),
    ],
)
def test_the_message_says_how_it_ended(said: str, status: FirstBootStatus) -> None:
    found = first_boot_of(f"BERTH-USER-DATA {NONCE} {said}", NONCE)
    assert found is not None
    assert found.status is status
    assert found.detail in (said, said.split(" ", 1)[-1], None)


@pytest.mark.parametrize(
    "line",
    [
        "BERTH-USER-DATA 0000 0 status: done",
        f"xBERTH-USER-DATA {NONCE} 0 status: done",
        f"BERTH-USER-DATA{NONCE} 0 status: done",
        f"BERTH-READY {NONCE}",
        f"BERTH-USER-DATA {NONCE}",
        "",
    ],
)
def test_no_other_line_is_the_message(line: str) -> None:
    assert first_boot_of(line, NONCE) is None


def test_a_detail_is_bounded_and_can_be_stored_and_printed() -> None:
    found = first_boot_of(f"BERTH-USER-DATA {NONCE} 1 status: error \x1b[2J\x00é  {'x' * 3000}", NONCE)
    assert found is not None
    assert found.detail is not None
    assert len(found.detail) == DETAIL_MAX
    assert found.detail.startswith("status: error [2J xxx")


class CountingDirectory(GuestDirectory):
    """Counts how often the record was read."""

    loads = 0

    def load(self) -> GuestRecord | None:
        self.loads += 1
        return super().load()


class Stage:
    """A guest with a record, whose channel is a socket of this test, and the listeners of one agent."""

    def __init__(self, path: Path) -> None:
        self.socket = path / "channel"
        found, record = guest(path, nonce=NONCE, state="running", first_boot=PENDING)
        self.directory = CountingDirectory(found.path)
        self.directory.path.mkdir()
        self.directory.save(record)
        self.runs = True
        self.asked_in: set[int] = set()
        """Threads in which processes were looked for."""
        self.connections = 0
        self.boots = self.agent()

    def agent(self) -> FirstBoots:
        """The listeners of an agent that starts."""

        async def find(_allocation_id: object) -> str:
            return str(self.socket)

        def processes(_path: Path) -> list[int]:
            self.asked_in.add(threading.get_ident())
            return [1] if self.runs else []

        return FirstBoots(find, processes, retry_seconds=0.01)

    @asynccontextmanager
    async def saying(self, *says: bytes, stays: bool = True) -> AsyncIterator[None]:
        """The guest says this to each connection, and keeps it open if it stays."""
        leave = asyncio.Event()

        async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.connections += 1
            try:
                for part in says:
                    writer.write(part)
                    await writer.drain()
                if stays:
                    await leave.wait()
            except ConnectionError:
                pass
            finally:
                writer.close()

        async with await asyncio.start_unix_server(serve, self.socket):
            try:
                yield
            finally:
                leave.set()

    def change(self, **changes: Any) -> None:
        record = self.directory.load()
        assert record is not None
        self.directory.save(record.model_copy(update=changes))

    @property
    def found(self) -> FirstBoot | None:
        record = self.directory.load()
        return None if record is None else record.first_boot

    async def ended(self, status: FirstBootStatus) -> None:
        async def has() -> bool:
            return self.found is not None and self.found.status is status

        await async_wait_for(has, f"the first boot is {status}")

    async def heard(self, connections: int) -> None:
        async def has() -> bool:
            return self.connections >= connections

        await async_wait_for(has, f"{connections} connections")

    async def idle(self) -> None:
        async def is_idle() -> bool:
            return not self.boots._listeners

        await async_wait_for(is_idle, "nothing is listened to")


def play(path: Path, scenario: Callable[[Stage], Awaitable[None]]) -> None:
    async def scene() -> None:
        stage = Stage(path)
        try:
            await scenario(stage)
        finally:
            await stage.boots.close()

    asyncio.run(scene())


def test_a_message_right_behind_the_ready_one_is_not_lost(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        async with stage.saying(READY + DONE):
            await stage.boots.await_ready(stage.directory, 20.0)
            await stage.ended(FirstBootStatus.DONE)
        assert stage.connections == 1, "what QEMU has passed on to a client that closes is lost"
        assert stage.found == FirstBoot(status=FirstBootStatus.DONE, detail="status: done detail: DataSourceNoCloud")

    play(tmp_path, scenario)


def test_readiness_does_not_wait_for_it_and_user_data_that_never_end_stay_pending(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        async with stage.saying(READY, b"BERTH-USER-DATA 0000 0 status: done\n", b"noise\n"):
            await stage.boots.await_ready(stage.directory, 20.0)
            await stage.boots.listen(stage.directory)
            assert stage.found == PENDING
            assert stage.connections == 1, "the listener that there is goes on"

    play(tmp_path, scenario)


def test_it_ends_once_whatever_the_guest_says_afterwards(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        async with stage.saying(READY, FAILED, DONE, DONE):
            await stage.boots.await_ready(stage.directory, 20.0)
            await stage.ended(FirstBootStatus.ERROR)
            await stage.idle()
        async with stage.saying(READY, DONE, stays=False):  # a reboot
            await stage.boots.await_ready(stage.directory, 20.0)
            await stage.boots.listen(stage.directory)
            await stage.idle()
        assert stage.connections == 2
        assert stage.found == FirstBoot(status=FirstBootStatus.ERROR, detail="status: error detail: runcmd")

    play(tmp_path, scenario)


def test_the_next_agent_receives_what_the_one_before_did_not(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        async with stage.saying(READY):
            await stage.boots.await_ready(stage.directory, 20.0)
            await stage.boots.close()
        stage.change(first_boot=None)  # of an agent of the version before
        async with stage.saying(b"BERTH-USER-DATA 5eed status: done\n"):
            stage.boots = stage.agent()
            await stage.boots.listen(stage.directory)
            await stage.ended(FirstBootStatus.DONE)
        assert stage.connections == 2

    play(tmp_path, scenario)


def test_a_channel_that_cannot_be_opened_is_tried_again_while_the_guest_runs(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        stage.change(first_boot=None)
        await stage.boots.listen(stage.directory)
        await stage.ended(FirstBootStatus.PENDING)
        async with stage.saying(DONE):
            await stage.ended(FirstBootStatus.DONE)
        assert stage.connections == 1
        assert stage.asked_in
        assert threading.get_ident() not in stage.asked_in, "all of /proc is read in a thread"

    play(tmp_path, scenario)


def test_a_guest_that_has_ended_is_not_listened_to(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        stage.runs = False
        await stage.boots.listen(stage.directory)
        await stage.idle()
        assert stage.found == PENDING

    play(tmp_path, scenario)


@pytest.mark.parametrize(
    "says",
    [[b"x" * (LINE_BYTES_MAX + 10)], [b"y\n" * (CHANNEL_BYTES_MAX // 2 + 10)]],
    ids=["no end of line", "a flood"],
)
def test_a_guest_that_says_too_much_is_not_read_on(tmp_path: Path, says: list[bytes]) -> None:
    async def scenario(stage: Stage) -> None:
        async with stage.saying(*says, DONE):
            await stage.boots.listen(stage.directory)
            await stage.ended(FirstBootStatus.UNKNOWN)
        assert stage.connections == 1

    play(tmp_path, scenario)


def test_lines_that_are_there_at_once_do_not_keep_the_agent_from_other_work() -> None:
    lines = CHANNEL_BYTES_MAX - 10

    async def scene() -> int:
        reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
        reader.feed_data(b"\n" * lines)
        reader.feed_eof()
        ours, theirs = socket.socketpair()
        with theirs:
            _, writer = await asyncio.open_connection(sock=ours)
            channel, heard, turns = GuestChannel(reader, writer), 0, 0

            other: asyncio.Handle | None = None

            def other_work() -> None:
                nonlocal turns, other
                turns += 1
                other = asyncio.get_running_loop().call_soon(other_work)

            other = asyncio.get_running_loop().call_soon(other_work)
            while await channel.line() is not None:
                heard += 1
            assert other is not None
            other.cancel()
            channel.close()
        assert heard == lines
        return turns

    assert asyncio.run(scene()) >= lines // LINES_PER_TURN


@pytest.mark.parametrize(
    ("said", "loads_max"),
    [(b"\n" * (CHANNEL_BYTES_MAX - len(DONE)), 0), (b"BERTH-USER-DATA 0 x\n" * (MESSAGES_MAX - 1), MESSAGES_MAX)],
    ids=["noise", "the message of no disk"],
)
def test_the_record_is_read_for_a_message_alone(tmp_path: Path, said: bytes, loads_max: int) -> None:
    async def scenario(stage: Stage) -> None:
        async with stage.saying(said, DONE):
            await stage.boots.listen(stage.directory)
            await stage.idle()
            assert stage.directory.loads <= loads_max + 10, "a few to begin, and to record what counts"
        assert stage.found == FirstBoot(status=FirstBootStatus.DONE, detail="status: done detail: DataSourceNoCloud")

    play(tmp_path, scenario)


def test_messages_of_no_disk_are_read_so_often_and_no_more(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        async with stage.saying(b"BERTH-USER-DATA 0 x\n" * (MESSAGES_MAX + 1), DONE):
            await stage.boots.listen(stage.directory)
            await stage.idle()
        assert stage.found is not None
        assert stage.found.status is FirstBootStatus.UNKNOWN
        assert stage.directory.loads <= MESSAGES_MAX + 10

    play(tmp_path, scenario)


@pytest.mark.parametrize("cloud_init", [True, False], ids=["the control", "without cloud-init"])
def test_a_guest_without_cloud_init_is_not_listened_to(tmp_path: Path, cloud_init: bool) -> None:
    async def scenario(stage: Stage) -> None:
        stage.change(cloud_init=cloud_init)
        async with stage.saying(READY):
            await stage.boots.listen(stage.directory)
            if cloud_init:
                await stage.heard(1)
            assert bool(stage.boots._listeners) is cloud_init

    play(tmp_path, scenario)


def test_a_message_for_a_guest_that_is_removed_changes_nothing(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        stage.directory.mark_releasing()
        async with stage.saying(DONE, stays=False):
            await stage.boots.listen(stage.directory)
            await stage.heard(1)
            await stage.idle()
        assert not stage.directory.record_file.exists()
        assert stage.found == PENDING

    play(tmp_path, scenario)


def test_a_guest_of_the_version_before_that_is_removed_meanwhile_is_not_recorded_anew(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        stage.change(first_boot=None)
        await stage.boots.listen(stage.directory)
        stage.directory.mark_releasing()  # before the listener's first turn
        stage.runs = False
        await stage.idle()
        assert not stage.directory.record_file.exists()
        assert stage.found is None

    play(tmp_path, scenario)


def test_the_message_of_another_seed_is_not_this_disks(tmp_path: Path) -> None:
    """A rebuild draws another nonce while the old connection may still be read."""

    async def scenario(stage: Stage) -> None:
        stage.change(nonce="0ther", first_boot=PENDING)
        async with stage.saying(DONE, b"BERTH-USER-DATA 0ther 1 status: error\n"):
            await stage.boots.listen(stage.directory)
            await stage.ended(FirstBootStatus.ERROR)
        assert stage.directory.allocation_id == ALLOCATION

    play(tmp_path, scenario)
