"""The real agent process and the work of the deploy system answer attestations, by a real TPM implementation (swtpm)."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import stat
from pathlib import Path
from typing import Any

import psutil
import pytest

from node_agent.attestation.attesting import ANSWER_SECONDS_MAX, EVENT_LOG, EVENT_LOG_BYTES_MAX, attest
from node_agent.attestation.tpm import Tpm
from node_agent.deploy_system.effects.attesting import attest_machine
from node_agent.deploy_system.effects.contract import Host, ToolRun
from node_agent.protocol import FailureCode, TaskType
from node_agent.wire.attestations import AttestationReport, MetalAttestParameters
from node_agent.wire.deploy_tasks import FirmwareVersion
from orchestrator.nodes.attestation.rules import (
    ATTEST_SECONDS_MAX,
    AttestationCode,
    Expected,
    Judgement,
    Verdict,
    judge,
)
from orchestrator.nodes.attestation.structures import read_attestation_key
from tests.api.nodes.attestation.swtpm import MISSING, WHY_NOT, running_tpm
from tests.node_agent.agents import AgentProcess, Tenant
from tests.node_agent.conftest import Play
from tests.node_agent.control_plane import ControlPlane
from tests.support.waiting import wait_for

NONCE, OTHER_NONCE = "ab" * 32, "cd" * 32
SWTPM = pytest.mark.skipif(bool(MISSING), reason=WHY_NOT)
_SLOW = """#!/bin/sh
touch "{marker}"
sleep 60
"""
_WITH_A_CHILD = """#!/bin/sh
sleep 600 &
echo $! >"{marker}"
wait
"""


async def ordered(plane: ControlPlane, nonce: str) -> AttestationReport:
    result = await plane.result_of(await plane.hand_out(plane.body(TaskType.ATTEST, {"nonce": nonce})))
    assert result.outcome == "completed", result
    return AttestationReport.model_validate(result.result)


def judged(report: AttestationReport, ak_public: bytes, nonce: str = NONCE) -> Judgement:
    return judge(report, Expected(read_attestation_key(ak_public), bytes.fromhex(nonce), None), [], is_late=False)


@SWTPM
def test_the_agent_quotes_the_nonce_with_the_key_of_its_enrolment(play: Play, tmp_path: Path) -> None:
    bound: list[bytes] = []

    def challenge(keys: Any) -> tuple[int, Any]:
        bound.append(base64.b64decode(keys.ak_public))
        return 200, {"credential": None, "encrypted_secret": None}

    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        plane.challenge = challenge
        agent.start(BERTH_ENROLMENT_TOKEN=plane.new_token())
        await plane.until(lambda: plane.waits > 0)
        assert "attest" in plane.heartbeats[-1].features
        first, second = await ordered(plane, NONCE), await ordered(plane, OTHER_NONCE)
        found = judged(first, bound[0])
        assert (found.verdict, found.pcrs and len(found.pcrs)) == (Verdict.PASSED, 8)
        assert judged(second, bound[0]).code is AttestationCode.OTHER_NONCE, "a quote answers one nonce"
        assert judged(second, bound[0], OTHER_NONCE).pcrs == found.pcrs
        assert not list((agent.state_dir / "identity").glob("tpm-*"))
        agent.kill()
        agent.start()
        assert judged(await ordered(plane, NONCE), bound[0]).verdict is Verdict.PASSED, "the same key after a restart"

    with running_tpm(tmp_path / "swtpm") as tcti:
        play(scenario, started=False, BERTH_TPM_TCTI=tcti)


@SWTPM
def test_a_deploy_system_answers_by_the_tpm_of_its_machine_and_no_other_does(tmp_path: Path) -> None:
    order = MetalAttestParameters(deploy_epoch=1, nonce=NONCE)
    with running_tpm(tmp_path / "one") as one, running_tpm(tmp_path / "two") as two:
        reports = [attest_machine(host(tmp_path), order, note, tcti) for tcti in (one, two)]
        keys = [base64.b64decode(asyncio.run(Tpm(tcti, tmp_path).keys()).ak_public) for tcti in (one, two)]
    verdicts = [[judged(report, key).code for key in keys] for report in reports]
    assert verdicts == [[None, AttestationCode.BAD_SIGNATURE], [AttestationCode.BAD_SIGNATURE, None]]


def test_a_node_without_a_tpm_and_one_whose_tpm_does_not_answer_say_so(play: Play, tmp_path: Path) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        report = await ordered(plane, NONCE)
        assert (report.proof, report.failure) == (None, "tpm_absent")
        assert report.firmware is not None
        for wrong in ({}, {"nonce": "ab"}, {"nonce": "zz" * 32}):
            refused = await plane.result_of(await plane.hand_out(plane.body(TaskType.ATTEST, wrong)))
            assert refused.failure is not None
            assert refused.failure.code is FailureCode.TASK_REFUSED

    play(scenario)
    gone = attest_machine(
        host(tmp_path), MetalAttestParameters(deploy_epoch=1, nonce=NONCE), note, f"device:{tmp_path}/none"
    )
    assert (gone.proof, gone.failure) == (None, "tpm_failed")
    assert "tpm2_createek" in gone.detail


@SWTPM
def test_an_agent_that_is_killed_meanwhile_reports_that_and_answers_the_next(play: Play, tmp_path: Path) -> None:
    slow, marker = tmp_path / "programs", tmp_path / "begun"
    slow.mkdir()
    (slow / "tpm2_createek").write_text(_SLOW.format(marker=marker))
    (slow / "tpm2_createek").chmod(stat.S_IRWXU)

    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        agent.start(BERTH_ENROLMENT_TOKEN=plane.new_token())
        await plane.until(lambda: plane.waits > 0)
        agent.kill()
        agent.start(PATH=f"{slow}:{os.environ['PATH']}")
        task = await plane.hand_out(plane.body(TaskType.ATTEST, {"nonce": NONCE}))
        await plane.until(marker.exists)
        agent.kill()
        agent.start()
        result = await plane.result_of(task)
        assert result.failure is not None
        assert result.failure.code is FailureCode.INTERRUPTED
        assert (await ordered(plane, OTHER_NONCE)).proof is not None
        assert not list((agent.state_dir / "identity").glob("tpm-*")), "what the killed one left is removed"

    with running_tpm(tmp_path / "swtpm") as tcti:
        play(scenario, started=False, BERTH_TPM_TCTI=tcti)


def test_a_tpm_that_hangs_is_given_up_before_the_task_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow, marker = tmp_path / "programs", tmp_path / "begun"
    slow.mkdir()
    (slow / "tpm2_createek").write_text(_WITH_A_CHILD.format(marker=marker))
    (slow / "tpm2_createek").chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{slow}:{os.environ['PATH']}")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    report = asyncio.run(attest(Tpm("none", scratch), NONCE, host(tmp_path), 1.0))
    assert (report.proof, report.failure) == (None, "tpm_failed")
    assert report.detail == "the TPM did not answer within 1 s"
    assert list(scratch.iterdir()) == []
    wait_for(lambda: not psutil.pid_exists(int(marker.read_text())), "the program's child to be ended with it")
    assert ANSWER_SECONDS_MAX < ATTEST_SECONDS_MAX


def note(step: str, detail: str, /) -> None:
    """Progress that is not read."""


def host(directory: Path) -> Host:
    """A machine made of files."""
    (directory / "sys/class/dmi/id").mkdir(parents=True, exist_ok=True)
    (directory / "sys/block").mkdir(exist_ok=True)
    (directory / "sys/class/dmi/id/bios_version").write_text("2.19.1\n")
    return Host(
        run=lambda command, timeout: ToolRun(127, ""), sys=directory / "sys", dev=directory / "dev", scratch=directory
    )


@pytest.mark.parametrize("size", [0, 100, EVENT_LOG_BYTES_MAX, EVENT_LOG_BYTES_MAX + 1])
def test_the_event_log_is_digested_within_a_bound(tmp_path: Path, size: int) -> None:
    machine = host(tmp_path)
    log = machine.sys / EVENT_LOG
    log.parent.mkdir(parents=True)
    with log.open("wb") as file:
        file.truncate(size)
    report = attest_machine(machine, MetalAttestParameters(deploy_epoch=1, nonce=NONCE), note)
    assert report.failure == "tpm_absent"
    assert report.firmware == [FirmwareVersion(component="bios", unit="smbios", version="2.19.1")]
    if size > EVENT_LOG_BYTES_MAX:
        assert (report.event_log, [gap.subject for gap in report.gaps]) == (None, ["event_log"])
    else:
        assert report.event_log is not None
        assert (report.event_log.size_bytes, report.event_log.sha256) == (size, hashlib.sha256(bytes(size)).hexdigest())
