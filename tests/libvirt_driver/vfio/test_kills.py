"""SIGKILL at every effect of taking and giving back: what was begun goes on, or is undone, and nothing stays bound."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.drivers.seams import BETWEEN, Strike
from tests.libvirt_driver.vfio.gpus import ALLOCATION, gpus_of
from tests.libvirt_driver.vfio.kernel import GPUS, SOUND, Kernel

MODULE = "tests.libvirt_driver.vfio.killed_while_passing"
RETURNED = ["nvidia", "snd_hda_intel"]


def run(directory: Path, kernel: Kernel, strike: Strike | None) -> tuple[int, list[list[object]]]:
    """The exit status of a process that passes a GPU and returns it, and its effects."""
    order, trace = directory / "order.json", directory / "trace"
    trace.unlink(missing_ok=True)
    if strike is not None:
        strike.write(order)
    node = directory / "node"
    node.mkdir(exist_ok=True)
    command = [sys.executable, "-m", MODULE, str(kernel.root), str(node / "devices"), str(order), str(trace)]
    done = subprocess.run(command, check=False)
    return done.returncode, [json.loads(line) for line in trace.read_text().splitlines()]


def bound(kernel: Kernel) -> list[str | None]:
    return [kernel.driver(one) for one in (GPUS[0], SOUND)]


@pytest.mark.full
def test_what_an_agent_had_begun_when_it_was_killed_is_resumed_or_undone(tmp_path: Path) -> None:
    with Kernel(tmp_path / "host") as kernel:
        status, effects = run(tmp_path, kernel, None)
        assert (status, bound(kernel)) == (0, RETURNED)
        places = [(phase, effect) for phase, effect, _ in effects]
        # Two functions bound, one reset, two given back: each a process; and the files that say so.
        assert sum(str(what).startswith("starts") for _, _, what in effects) >= 5
        assert (0, BETWEEN) in places
        for number, (phase, effect) in enumerate(places):
            assert isinstance(phase, int)
            status, _ = run(tmp_path, kernel, Strike(phase, effect, "kill"))  # type: ignore[arg-type]
            assert status == -signal.SIGKILL, f"{phase} {effect}"
            gpus, resets = gpus_of(kernel.root, tmp_path / "node" / "devices"), len(kernel.resets)
            known = gpus.taken.load(ALLOCATION)
            if number % 2:
                asyncio.run(gpus.take(ALLOCATION, [GPUS[0]]))
                assert bound(kernel) == ["vfio-pci"] * 2, f"{phase} {effect}: it is resumed"
            was_passed = known is not None and known[0] == "passed"
            proofs = asyncio.run(gpus.give_back(ALLOCATION))
            assert bound(kernel) == RETURNED, f"{phase} {effect}"
            if was_passed or number % 2:
                assert [proof.device for proof in proofs] == [GPUS[0]]
                assert len(kernel.resets) > resets, "what a guest may have had is reset"
            gpus.taken.forget(ALLOCATION)
            assert list(gpus.taken.all()) == []
