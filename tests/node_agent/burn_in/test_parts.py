"""Each part finds its seeded faults, takes no more than its bound, and leaves nothing."""

from __future__ import annotations

import faulthandler
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_agent.burn_in import disk, memory
from node_agent.burn_in.cpu import run_cpu_test
from node_agent.burn_in.disk import Scratch, remove_remains, run_disk_test
from node_agent.burn_in.memory import Buffer, anonymous, available, run_memory_test
from node_agent.discovery.reading import Gaps
from tests.node_agent.burn_in.faulty import (
    ALLOWED,
    FLIPPED,
    Aliasing,
    Corrupted,
    Flipping,
    Full,
    Shortened,
    Unreadable,
    wrong_on_the_last_core,
)

MIB = 2**20


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_sound_memory_is_healthy_and_its_bound_is_kept() -> None:
    sizes: list[int] = []

    def counted(size: int) -> Buffer:
        sizes.append(size)
        return anonymous(size)

    found = run_memory_test(40 * MIB, shared=False, allocate=counted, free=lambda: 1024 * MIB)
    assert (found.verdict, found.bytes_tested, sum(sizes)) == ("healthy", 32 * MIB, 32 * MIB)


def test_a_bit_that_flips_is_found() -> None:
    found = run_memory_test(16 * MIB, shared=False, allocate=Flipping, free=lambda: 1024 * MIB)
    assert found.verdict == "fault"
    assert found.evidence == f"pattern 0x00: byte {FLIPPED} of {16 * MIB} was written 0x00, read 0x10"


def test_an_address_line_that_is_stuck_is_found() -> None:
    found = run_memory_test(16 * MIB, shared=False, allocate=Aliasing, free=lambda: 1024 * MIB)
    assert found.verdict == "fault"
    assert found.evidence.startswith("pattern address of the block: byte 0 of ")


def test_memory_that_becomes_short_is_left_to_the_guests() -> None:
    free = iter([1024 * MIB, 1024 * MIB, 1024 * MIB, 200 * MIB])
    found = run_memory_test(512 * MIB, shared=False, free=lambda: next(free))
    assert (found.verdict, found.bytes_tested) == ("healthy", 32 * MIB)


@pytest.mark.parametrize(("free", "shared"), [(31 * MIB, False), (255 * MIB, True)])
def test_too_little_memory_is_no_verdict(free: int, shared: bool) -> None:
    found = run_memory_test(512 * MIB, shared=shared, free=lambda: free)
    assert (found.verdict, found.bytes_tested) == ("unknown", None)
    assert str(free) in found.evidence


@given(st.integers(0, 2**45), st.integers(0, 2**40), st.booleans())
def test_a_bound_is_a_share_and_shared_is_smaller(free: int, most: int, shared: bool) -> None:
    for module, share, small in ((memory, 2, 16), (disk, 4, 32)):
        bound = module.bound_of(free, most, shared=shared)
        assert 0 <= bound <= min(most, free // (small if shared else share))
        assert module.bound_of(2**45, most, shared=True) <= max(most // 8, module.BYTES_MIN), "also where much is free"
        assert module.bound_of(free, most, shared=True) <= module.bound_of(free, most, shared=False)


def test_a_control_group_bounds_what_is_available(tmp_path: Path) -> None:
    group = tmp_path / "sys/fs/cgroup/system.slice/agent.service"
    group.mkdir(parents=True)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal: 999 kB\nMemAvailable:   1048576 kB\n")
    assert available(tmp_path) == 1024 * MIB
    (tmp_path / "proc/self/cgroup").write_text("0::/system.slice/agent.service\n")
    assert available(tmp_path) == 1024 * MIB
    (group.parent / "memory.max").write_text(f"{512 * MIB}\n")
    (group.parent / "memory.current").write_text(f"{100 * MIB}\n")
    assert available(tmp_path) == 412 * MIB
    (group / "memory.max").write_text("max\n")
    (group / "memory.current").write_text("5\n")
    assert available(tmp_path) == 412 * MIB
    (group / "memory.max").write_text(f"{MIB}\n")
    (group / "memory.current").write_text(f"{2 * MIB}\n")
    assert available(tmp_path) == 0


def test_a_sound_disk_is_healthy_and_keeps_nothing(tmp_path: Path) -> None:
    gaps = Gaps()
    found = run_disk_test(tmp_path, 3 * MIB + 5, gaps, shared=False)
    assert (found.verdict, found.bytes_tested) == ("healthy", 3 * MIB)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("scratch", "verdict", "evidence"),
    [
        (Corrupted, "fault", "block 1 of 3 is not what was written"),
        (Shortened, "fault", "block 2 of 3: 1044480 bytes were read of 1048576"),
        (Unreadable, "fault", "Input/output error (errno 5)"),
        (Full, "unknown", "No space left on device (errno 28)"),
    ],
)
def test_faults_of_a_disk_are_found(tmp_path: Path, scratch: type[Scratch], verdict: str, evidence: str) -> None:
    before = open_files()
    found = run_disk_test(tmp_path, 3 * MIB, Gaps(), shared=False, scratch=scratch)
    assert (found.verdict, found.evidence) == (verdict, evidence)
    assert list(tmp_path.iterdir()) == []
    assert open_files() == before, "no descriptor keeps the file"


def test_a_file_system_without_unnamed_files_or_direct_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, seen = os.open, []

    def refusing(path: str | Path, flags: int, mode: int = 0o600) -> int:
        seen.append(sorted(entry.name for entry in tmp_path.iterdir()))
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(95, "Operation not supported")
        if flags & os.O_DIRECT:
            raise OSError(22, "Invalid argument")
        return real(path, flags, mode)

    (tmp_path / "burn-in.tmp").write_text("left by a kill")
    gaps = Gaps()
    monkeypatch.setattr(os, "open", refusing)
    found = run_disk_test(tmp_path, 2 * MIB, gaps, shared=False)
    monkeypatch.undo()
    assert found.verdict == "healthy"
    assert [gap.reason for gap in gaps.all()] == [
        "O_DIRECT does not work there: Invalid argument; read after a drop of the page cache"
    ]
    assert seen[-1] == [], "it has no name while it is read"
    assert list(tmp_path.iterdir()) == []


def test_remains_of_a_kill_are_removed(tmp_path: Path) -> None:
    (tmp_path / "burn-in.tmp").write_bytes(b"x")
    for _ in range(2):
        remove_remains(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_every_core_computes_the_known_result() -> None:
    found = run_cpu_test(0.05, shared=False)
    assert (found.verdict, found.cores_tested) == ("healthy", len(ALLOWED))


def test_one_core_that_errs_is_named() -> None:
    found = run_cpu_test(0.05, shared=False, computation=wrong_on_the_last_core)
    assert found.verdict == "fault"
    assert found.evidence == f"1 of {len(ALLOWED)} cores computed another result, or none: {max(ALLOWED)}"


def ends() -> str:
    os._exit(7)


def fails() -> str:
    raise MemoryError


def breaks() -> str:
    faulthandler.disable()  # pytest's would print a traceback first
    os.kill(os.getpid(), signal.SIGILL)
    return ""


def test_a_core_that_breaks_its_process_is_a_fault() -> None:
    found = run_cpu_test(0.05, shared=False, computation=breaks)
    assert (found.verdict, str(max(ALLOWED)) in (found.evidence or "")) == ("fault", True)


@pytest.mark.parametrize("computation", [ends, fails])
def test_a_core_whose_process_ends_is_not_tested(computation: Callable[[], str]) -> None:
    found = run_cpu_test(0.05, shared=False, computation=computation)
    assert (found.verdict, found.cores_tested) == ("unknown", 0)
