"""The stub judged by DMTF's protocol validator, so that the client is not tested against our own idea of Redfish."""

from __future__ import annotations

import asyncio
import collections
import os
import re
from pathlib import Path

import pytest

from node_agent.redfish.clock import SystemClock
from tests.redfish.running import run
from tests.redfish.tools import tool
from tests.support.bmc.machine import StubMachine
from tests.support.bmc.server import certificate, server_context, serving
from tests.support.bmc.service import StubService

ASSERTIONS_MIN = 250


@pytest.mark.full
def test_the_protocol_validator_finds_no_failure_in_the_stub(tmp_path: Path) -> None:
    program = tool("rf_protocol_validator")
    pem = tmp_path / "certificate.pem"
    pem.write_bytes(certificate(1)[0])

    async def scene() -> str:
        async with serving(StubService(StubMachine(SystemClock())), server_context(1), 0) as port:
            arguments = ["--user", "berth", "--password", "first-secret", "--rhost", f"https://127.0.0.1:{port}"]
            arguments += [
                "--ca-bundle",
                str(pem),
                "--report-type",
                "tsv",
                "--report-dir",
                "report",
                "--avoid-http-redirect",
            ]
            # requests lets this variable win over the program's own option.
            environment = os.environ | {"REQUESTS_CA_BUNDLE": str(pem), "NO_PROXY": "*"}
            child = await asyncio.create_subprocess_exec(
                program,
                *arguments,
                cwd=tmp_path,
                env=environment,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            try:
                output, _ = await asyncio.wait_for(child.communicate(), 120)
            finally:
                if child.returncode is None:
                    child.kill()
                    await child.wait()
            return output.decode()

    output = run(scene(), 150)
    (report,) = (tmp_path / "report").glob("*.tsv")
    rows = [m for line in report.read_text().splitlines() if (m := re.search(r"\t(PASS|FAIL|WARN)\t(.*)", line))]
    counts = collections.Counter(row[1] for row in rows)
    assert counts["FAIL"] == counts["WARN"] == 0, ([row[2] for row in rows if row[1] != "PASS"], output[-2000:])
    assert counts["PASS"] >= ASSERTIONS_MIN
