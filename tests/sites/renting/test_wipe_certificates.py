"""The release of a machine yields the certificate of what its deploy system proved; a forged statement yields none."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from node_agent.protocol import TaskBody
from node_agent.wiping.devices import WipeLevel
from node_agent.wiping.machine import FirmwareReading, UefiComparison
from node_agent.wiping.statement import (
    StatementEnvelope,
    WipeStatement,
    open_statement,
    sign_statement,
)
from node_agent.wire.deploy_enrolment import DeployResultReport
from orchestrator.allocations.outcomes import Retry
from orchestrator.allocations.queries import find_wipe_certificate
from orchestrator.allocations.states import AllocationState
from orchestrator.nodes.deploy_systems.run_rules import Move, RunKind
from orchestrator.wipes.certificate import (
    VerifiedCertificate,
    machine_claims,
    read_certificate,
    verify_certificate,
)
from orchestrator.wipes.refusals import WipeCertificateMissing
from tests.at_length import at_length
from tests.deploy_system.ordering import WIPED
from tests.sites import running
from tests.sites.renting.forgeries import FORGERIES, REASONS, altered
from tests.sites.renting.machine_key import MachineKey
from tests.sites.renting.tenancy import LARGE, Renting, Scene
from tests.sites.running import Run, inspect, to_work
from tests.verifying import broken_promises
from tests.wiping.sites import Site

Play = Callable[[Scene], None]
VARIABLE = {"name": "BootOrder-8be4df61-93ca-11d2-aa0d-00e098032b8c", "sha256": "0" * 64}


@pytest.fixture
def site() -> Site:
    return Site()


async def concluded(rent: Renting, site: Site, directory: Path) -> Any:
    """What the workflow of the release finds, with the control plane's key of the site, and its key set in a file."""
    stage = rent.run.stage
    known, stage.worker = stage.worker, dataclasses.replace(stage.worker, signer=site.signer(directory))
    try:
        return await rent.cleaned_up()
    finally:
        stage.worker = known


async def to_wipe(rent: Renting) -> None:
    """A tenancy that is being released, until the deploy system is to wipe."""
    await rent.activate()
    await rent.release()
    await rent.clean_up()
    assert await rent.steps() is Move.WORK


async def certificate(rent: Renting, site: Site) -> VerifiedCertificate:
    """The certificate as its tenant reads it, verified with the root's key alone."""
    document = await find_wipe_certificate(rent.run.stage.context.database, rent.allocation, rent.seeded.tenant_id)
    return verify_certificate(read_certificate(json.dumps(document).encode()), rent.allocation, site.roots)


def test_a_release_yields_a_certificate_of_every_disk(play: Play, site: Site, tmp_path: Path) -> None:
    async def scene(rent: Renting) -> None:
        found = []
        for _ in range(2):
            await to_wipe(rent)
            await rent.wipe(signing=MachineKey(site))
            assert await rent.steps() is Move.CLOSE
            assert (await concluded(rent, site, tmp_path)).state is AllocationState.RELEASED
            found.append(await certificate(rent, site))
        said = found[0].predicate
        assert [(one.device, one.serial, one.method, one.level) for one in said.devices] == [
            ("disk S1", "S1", "overwrite", WipeLevel.CLEAR), ("disk S2", "S2", "overwrite", WipeLevel.CLEAR),
        ]  # fmt: skip
        assert said.devices[1].checked["size_bytes"] == LARGE["size_bytes"]
        assert said.devices[1].checked["read_bytes"] == 4096, "samples: it claims no more than was read"
        assert (said.verdict, said.level, said.hard_stopped, said.driver) == ("wiped", "clear", None, "redfish")
        assert said.machine is not None
        assert (said.machine.tpm, said.machine.uefi_variables, said.machine.firmware) == ("not_asked", None, None)
        assert [one.link.number for one in found] == [1, 2]
        assert found[1].link.previous_sha256 == found[0].sha256
        assert found[1].predicate.machine is not None
        assert found[1].predicate.machine.deploy_epoch > said.machine.deploy_epoch
        released = rent.run.row(
            "select payload from outbox where event_type = 'provisioning.releasing.completed' order by id desc limit 1"
        )[0]
        assert released["wipe_certificate_sha256"] == found[1].sha256
        assert "wipe_statement" not in rent.row["release_result"]

    play(scene)


def test_it_says_what_became_of_tpm_variables_and_firmware(play: Play, site: Site, tmp_path: Path) -> None:
    bios = {"component": "bios", "unit": "smbios", "version": "2"}

    async def scene(rent: Renting) -> None:
        await to_wipe(rent)
        changed = MachineKey(site)
        found = {"tpm": "cleared", "variables_removed": [VARIABLE["name"]]}
        parameters = {"uefi_variables": [], "clear_tpm": True}
        rent.run.row(
            "update deploy_tasks set parameters = parameters || cast(%s as jsonb) where ended_at is null returning 1",
            json.dumps(parameters),
        )
        connection = rent.run.stage.fleet.connection
        connection.execute(
            "update node_machines set firmware = cast(%s as jsonb)", (json.dumps([{**bios, "version": "1"}]),)
        )
        await rent.wipe(signing=changed, firmware=[bios], also=found)
        assert await rent.steps() is Move.QUARANTINE
        assert (await concluded(rent, site, tmp_path)).state is AllocationState.RELEASED
        proven = await certificate(rent, site)
        machine = proven.predicate.machine
        assert machine is not None
        assert isinstance(machine.firmware, FirmwareReading)
        assert (machine.tpm, machine.firmware.versions) == ("cleared", 1)
        assert machine.uefi_variables == UefiComparison(removed=1, changed=0, raw_store_erased=False)
        assert proven.link.machine is not None
        assert (proven.link.machine.firmware, proven.link.machine.findings) == ("objected", ["firmware_changed"])
        said = machine_claims(proven)
        assert said is not None
        assert "UEFI variables: 1 removed, 0 changed, raw store not erased" in said
        assert "findings: firmware_changed" in said

    play(scene)


@pytest.mark.parametrize(
    ("before", "after", "said"), [("2", "2", "no_objection"), ("2", None, "not_compared"), (None, "2", "not_compared")]
)
def test_firmware_that_was_compared_with_nothing_is_not_said_to_be_as_before(
    play: Play, site: Site, tmp_path: Path, before: str | None, after: str | None, said: str
) -> None:
    bios = {"component": "bios", "unit": "smbios"}

    async def scene(rent: Renting) -> None:
        await to_wipe(rent)
        if before is not None:
            known = json.dumps([{**bios, "version": before}])
            rent.run.row("update node_machines set firmware = cast(%s as jsonb) returning 1", known)
        await rent.wipe(signing=MachineKey(site), firmware=None if after is None else [{**bios, "version": after}])
        assert await rent.steps() is Move.CLOSE
        await concluded(rent, site, tmp_path)
        found = (await certificate(rent, site)).link.machine
        assert found is not None
        assert (found.firmware, found.findings) == (said, [])

    play(scene)


@pytest.mark.parametrize("minutes", [-30, 30])
def test_a_deploy_system_whose_time_is_another_costs_no_certificate(
    play: Play, site: Site, tmp_path: Path, minutes: int
) -> None:
    """It has the time of the host that answered it, which is not the database's."""
    ended_at = (dt.datetime.now(dt.UTC) + dt.timedelta(minutes=minutes)).replace(microsecond=0)

    async def scene(rent: Renting) -> None:
        await to_wipe(rent)
        await rent.wipe(signing=MachineKey(site, altered(ended_at=ended_at.isoformat())))
        assert await rent.steps() is Move.CLOSE
        assert (await concluded(rent, site, tmp_path)).state is AllocationState.RELEASED
        assert (await certificate(rent, site)).predicate.ended_at == ended_at

    play(scene)


DROPPED = "berth_api_wipe_statements_dropped_total"


@pytest.mark.parametrize(
    "forgery", at_length(list(FORGERIES), ["a-disk-left-out", "bad-signature", "same-serial-other-key"])
)
def test_a_forged_statement_is_dropped_and_the_proven_wipe_counts(
    play: Play, site: Site, tmp_path: Path, forgery: str
) -> None:
    reason = REASONS.get(forgery, "other_task")

    async def scene(rent: Renting) -> None:
        await to_wipe(rent)
        before = REGISTRY.get_sample_value(DROPPED, {"reason": reason}) or 0
        with capture_logs() as logs:
            await rent.wipe(signing=MachineKey(site, **FORGERIES[forgery]))
        assert [(line["reason"], line["node_id"]) for line in logs if line["event"] == "wipe_statement_dropped"] == [
            (reason, str(rent.run.node))
        ]
        assert REGISTRY.get_sample_value(DROPPED, {"reason": reason}) == before + 1
        assert rent.run.row("select count(*) from deploy_systems where wipe_statement is not null")[0] == 0
        assert await rent.steps() is Move.CLOSE
        assert (await rent.run.shown())["outcome"] == "completed"
        assert (await concluded(rent, site, tmp_path)).state is AllocationState.RELEASED
        assert rent.claim["closed_at"] is not None
        assert rent.run.row("select count(*) from wipe_certificates")[0] == 0
        with pytest.raises(WipeCertificateMissing):
            await certificate(rent, site)
        assert broken_promises(rent.url) == {}

    play(scene)


def test_a_statement_of_another_release_that_was_stored_certifies_nothing(
    play: Play, site: Site, tmp_path: Path
) -> None:
    async def scene(rent: Renting) -> None:
        await to_wipe(rent)
        key = MachineKey(site)
        await rent.wipe(signing=key)
        other = altered(allocation_id=str(uuid4()))
        stored = rent.run.row("select wipe_statement from deploy_systems where wipe_statement is not null")[0]
        stated = open_statement(StatementEnvelope.model_validate(stored)).statement
        changed = WipeStatement.model_validate(other(stated.model_dump(mode="json", by_alias=True)))
        envelope = sign_statement(changed, key.key, key.certificate).model_dump_json()
        rent.run.row(
            "update deploy_systems set wipe_statement = %s where wipe_statement is not null returning 1", envelope
        )
        assert await rent.steps() is Move.CLOSE
        with capture_logs() as logs:
            assert (await concluded(rent, site, tmp_path)).state is AllocationState.RELEASED
        assert [line["allocation_id"] for line in logs if line["event"] == "wipe_not_certified"] == [
            str(rent.allocation)
        ]
        assert rent.claim["closed_at"] is not None
        assert rent.run.row("select count(*) from wipe_certificates")[0] == 0
        assert "wipe_statement" in rent.row["release_result"], "what was not certified is kept"
        assert broken_promises(rent.url) == {}

    play(scene)


def test_a_wipe_that_proves_too_little_has_no_certificate_and_blocks_the_units(
    play: Play, site: Site, tmp_path: Path
) -> None:
    async def scene(rent: Renting) -> None:
        await to_wipe(rent)
        outcome: Any = None
        while outcome is None or isinstance(outcome, Retry):
            if outcome is not None:
                rent.run.stage.fleet.connection.execute("update claims set waits_until = clock_timestamp()")
                await rent.clean_up()
                await rent.steps()
            await rent.wipe(signing=MachineKey(site), nonzero_bytes_found=True)
            assert await rent.steps() is Move.CLOSE
            outcome = await concluded(rent, site, tmp_path)
        assert outcome.state is AllocationState.RELEASE_FAILED
        assert rent.claim["closed_at"] is None
        with pytest.raises(WipeCertificateMissing):
            await certificate(rent, site)
        assert rent.run.row("select count(*) from deploy_systems where wipe_statement is not null")[0] == 0

    play(scene)


def test_a_disk_that_was_deployed_and_is_not_in_the_statement_keeps_the_units(
    play: Play, site: Site, tmp_path: Path
) -> None:
    async def scene(rent: Renting) -> None:
        await rent.activate()
        inspect(rent.run, disks=[{"name": "sda", "serial": "S1", "size_bytes": 2 << 30}])  # the other one was taken out
        await rent.release()
        await rent.clean_up()
        await rent.steps()
        await rent.wipe(count=1, signing=MachineKey(site))
        assert await rent.steps() is Move.CLOSE
        assert isinstance(await concluded(rent, site, tmp_path), Retry)
        assert rent.claim["closed_at"] is None
        assert rent.run.row("select count(*) from wipe_certificates")[0] == 0

    play(scene)


def test_a_deploy_system_of_an_earlier_version_releases_without_one(play: Play, site: Site, tmp_path: Path) -> None:
    async def scene(rent: Renting) -> None:
        await to_wipe(rent)
        await rent.wipe()
        assert await rent.steps() is Move.CLOSE
        assert (await concluded(rent, site, tmp_path)).state is AllocationState.RELEASED
        with pytest.raises(WipeCertificateMissing, match="deploy system signed no statement"):
            await certificate(rent, site)

    play(scene)


def test_a_wipe_of_an_operator_releases_nothing_and_has_no_statement(
    database_url: str, tmp_path: Path, site: Site
) -> None:
    bodies = []

    async def scene(run: Run) -> None:
        key = MachineKey(site)

        def signed(report: DeployResultReport, body: TaskBody) -> DeployResultReport:
            bodies.append(body.allocation_id)
            assert key.signed(report, body).wipe_statement is None
            return key.signed(report, body.model_copy(update={"allocation_id": uuid4()}))

        inspect(run)
        serial = await to_work(run, RunKind.WIPE)
        key.certify(run, serial)
        await run.report(key.serial, result=WIPED, sign=signed)
        assert await run.advance() is Move.END
        await run.perform()
        assert await run.advance() is Move.CLOSE
        assert (await run.shown())["outcome"] == "completed"
        assert run.row("select count(*) from deploy_systems where wipe_statement is not null")[0] == 0

    running.play(database_url, tmp_path, scene)
    assert bodies == [None]
