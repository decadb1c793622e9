"""The outside view shares no code with drivers, and sees what is there."""

from __future__ import annotations

import ast
import os
import subprocess
import uuid
from pathlib import Path

import pytest

from tests.drivers.processes_seen import content, processes_of_allocations, traces_of
from tests.support.waiting import wait_for

HERE = Path(__file__).parent
LOOKING = ("processes_seen.py", "libvirt_probe.py", "sandbox_probe.py", "template_probe.py")


def drivers_code(source: str) -> list[str]:
    """The modules of drivers that a file imports."""
    return [
        node.module
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and node.module is not None
        if "driver" in node.module.removeprefix("tests.drivers.")
    ]


def test_probes_import_no_code_of_drivers() -> None:
    assert {name: drivers_code((HERE / name).read_text()) for name in LOOKING} == {name: [] for name in LOOKING}
    assert sorted(path.name for path in HERE.glob("*_probe.py")) == sorted(LOOKING[1:])
    assert drivers_code("from node_agent.drivers.sandbox.records import AllocationDirectory")
    assert drivers_code("from node_agent.drivers.template import TemplateDriver")


@pytest.mark.parametrize("how", ["argument", "environment", "open file", "directory"])
def test_a_process_of_an_allocation_is_seen_however_it_belongs(tmp_path: Path, how: str) -> None:
    allocation, other = uuid.uuid4(), uuid.uuid4()
    directory = tmp_path / str(allocation)
    directory.mkdir()
    command = ["sh", "-c", "sleep 1000; true", *([str(directory / "x")] if how == "argument" else [])]
    environment = {**os.environ, **({"HOME": f"{directory}/home"} if how == "environment" else {})}
    environment["BERTH_ALLOCATION_ID"] = str(other)
    log = (directory if how == "open file" else tmp_path) / "log"
    with log.open("wb") as opened:
        process = subprocess.Popen(
            command, env=environment, cwd=directory if how == "directory" else None, stdout=opened,
            start_new_session=True,
        )  # fmt: skip
    try:
        wait_for(lambda: process.pid in processes_of_allocations(tmp_path).get(allocation, set()), "the process")
        assert set(processes_of_allocations(tmp_path)) == {allocation}, "the id alone may be another node's"
    finally:
        os.killpg(process.pid, 9)
        process.wait()


def test_a_marker_is_found_in_files_names_arguments_and_environments(tmp_path: Path) -> None:
    marker = f"marker-{uuid.uuid4().hex}"
    assert traces_of(marker, tmp_path) == []
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "file").write_bytes(b"\0" * 5000 + marker.encode())
    (tmp_path / marker).symlink_to("nowhere")
    process = subprocess.Popen(["sh", "-c", f"sleep 1000; echo {marker}"], start_new_session=True)
    hidden = subprocess.Popen(["sleep", "1000"], env={"PATH": os.environ["PATH"], "SECRET": marker})
    try:
        expected = {
            str(tmp_path / "deep" / "file"), str(tmp_path / marker), f"cmdline of process {process.pid}",
            f"environ of process {hidden.pid}",
        }  # fmt: skip
        wait_for(lambda: set(traces_of(marker, tmp_path)) >= expected, "the traces")
        assert {"deep": "directory", marker: "link to nowhere"}.items() <= content(tmp_path).items()
    finally:
        os.killpg(process.pid, 9)
        hidden.kill()
        for ended in (process, hidden):
            ended.wait()
