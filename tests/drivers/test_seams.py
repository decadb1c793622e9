"""The seam strikes where it was asked to, and nowhere else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.drivers.seams import BETWEEN, Strike, fill
from tests.drivers.stage import small_disk

WORK = """
import sys
from pathlib import Path
from berth.process.crash_points import reach
from tests.drivers.seams import EFFECT, Seam

directory, order, trace = map(Path, sys.argv[1:4])
Seam(directory, order, trace, {9}).install()
(directory / "before").write_text("no task runs yet")
reach("effect.before_beginning")
(directory / "a").write_text("a")
(directory / "a").read_text()
(directory.parent / "elsewhere").write_text("not the driver's")
reach("effect.at_phase")
(directory / "b").mkdir()
(directory / "a").rename(directory / "b" / "c")
sys.audit(EFFECT, "defines a domain")
reach("effect.at_phase")
reach("effect.after_end")
(directory / "after").write_text("the task has ended")
"""


def work(directory: Path, strike: Strike | None) -> tuple[int, list[str], list[object]]:
    """Exit status of the process, the files that it leaves, and the effects that were seen."""
    node = directory / "node"
    node.mkdir(exist_ok=True)
    order, trace = directory / "order.json", directory / "trace"
    if strike is not None:
        strike.write(order)
    done = subprocess.run([sys.executable, "-c", WORK, str(node), str(order), str(trace)], check=False)
    files = sorted(str(path.relative_to(node)) for path in node.rglob("*") if path.name != ".ballast")
    seen: list[object] = [tuple(json.loads(line)[:2]) for line in trace.read_text().splitlines()]
    assert strike is None or not order.exists(), "a strike happens once"
    return done.returncode, files, seen


EVERY = [(0, 0), (0, BETWEEN), (1, 0), (1, 1), (1, 2), (1, BETWEEN)]


def test_every_effect_of_a_task_is_seen_with_its_phase(tmp_path: Path) -> None:
    assert work(tmp_path, None) == (0, ["after", "b", "b/c", "before"], EVERY)


@pytest.mark.parametrize(
    ("phase", "effect", "left"),
    [
        (0, 0, []),
        (0, BETWEEN, ["a"]),
        (1, 0, ["a"]),
        (1, 1, ["a", "b"]),
        (1, 2, ["b", "b/c"]),
        (1, BETWEEN, ["b", "b/c"]),
    ],
)
def test_a_kill_is_before_the_effect(tmp_path: Path, phase: int, effect: int, left: list[str]) -> None:
    status, files, seen = work(tmp_path, Strike(phase, effect, "kill"))
    assert status == -9
    assert files == sorted(["before", *left])
    assert seen == EVERY[: EVERY.index((phase, effect)) + 1]


def test_a_filled_disk_takes_no_further_byte(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 1 << 20) as disk:
        if disk is None:
            pytest.skip("this user may not mount a tmpfs")
        (disk / "before").write_text("written")
        fill(disk)
        with pytest.raises(OSError, match="No space left on device"):
            (disk / "after").write_text("x")
        assert (disk / "before").read_text() == "written"
        (disk / "before").rename(disk / "renamed")
