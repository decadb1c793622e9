"""The transaction that frees the units issues the wipe certificate; a forged statement and an unproven device free nothing."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from node_agent.key_set import KeySetEnvelope
from node_agent.protocol import FailureCode
from node_agent.wiping.statement import make_statement
from orchestrator.allocations.commands.cleanup import begin_release, finish_release
from orchestrator.allocations.commands.provision import begin_provisioning, finish_provisioning
from orchestrator.allocations.queries import find_wipe_certificate
from orchestrator.operations.execution import Context, Limits
from orchestrator.problems import Invalid, NotFound
from orchestrator.wipes.certificate import VerifiedCertificate, read_certificate, verify_certificate
from orchestrator.wipes.refusals import WipeCertificateMissing
from tests.allocations.driving import (
    PROVISIONED,
    WIPED,
    allocation_of,
    claim_of,
    completed,
    failed,
    provision,
    release,
    report,
    row_of,
    rows_of,
    run_with,
    task_of,
)
from tests.allocations.seeding import Seeded, connect, create_allocation, seed
from tests.support.stuck_releases import ONCE
from tests.wiping.sites import Site, predicate_of, wiped

Way = Callable[[Context], Awaitable[Any]]


@dataclasses.dataclass
class Scene:
    """A database with nodes that sign, and the site that their certificates come from."""

    url: str
    seeded: Seeded
    site: Site
    directory: Path

    def run(self, way: Way, limits: Limits | None = None) -> Any:
        """Run `way` with the control plane's signer."""
        signer = self.site.signer(self.directory)
        return run_with(self.url, lambda context: way(dataclasses.replace(context, signer=signer)), limits=limits)

    def allocation(self) -> UUID:
        """A new allocation of one GPU."""
        return create_allocation(self.url, self.seeded, gpus=1)

    def row(self, allocation_id: UUID) -> dict[str, Any]:
        return row_of(self.url, "select * from wipe_certificates where allocation_id = %s", allocation_id)

    async def issued(self, context: Context, allocation_id: UUID) -> VerifiedCertificate:
        """The certificate as the tenant reads it, verified with the root's key alone."""
        document = await find_wipe_certificate(context.database, allocation_id, self.seeded.tenant_id)
        return verify_certificate(read_certificate(json.dumps(document).encode()), allocation_id, self.site.roots)

    async def release_with(
        self, context: Context, allocation_id: UUID, change: Callable[[dict[str, Any]], dict[str, Any]] = dict
    ) -> None:
        """Release; the node reports one wiped device in a signed statement, which `change` may alter."""
        await release(context, self.seeded, allocation_id)
        await begin_release(context, allocation_id, "wf")
        task = task_of(self.url, allocation_id)
        await report(context, task, completed(task, change(self.site.release_result(task, wiped()))))
        await finish_release(context, allocation_id, "wf")


@pytest.fixture
def scene(database_url: str, tmp_path: Path) -> Scene:
    seeded, site = seed(database_url, slice_nodes=1), Site()
    for node in seeded.nodes:
        site.enrol(node.id, database_url)
    return Scene(database_url, seeded, site, tmp_path)


def test_a_release_yields_a_certificate_that_its_tenant_verifies(scene: Scene) -> None:
    allocation_id = scene.allocation()

    async def way(context: Context) -> VerifiedCertificate:
        await provision(context, scene.url, allocation_id)
        with pytest.raises(WipeCertificateMissing, match="it is active"):
            await find_wipe_certificate(context.database, allocation_id, scene.seeded.tenant_id)
        await scene.release_with(context, allocation_id)
        return await scene.issued(context, allocation_id)

    found = scene.run(way)
    assert found.predicate.devices == [wiped()]
    assert (found.link.number, found.link.previous_sha256) == (1, None)
    released = row_of(scene.url, "select payload from outbox where event_type = 'provisioning.releasing.completed'")
    assert released["payload"]["wipe_certificate_sha256"] == found.sha256 == scene.row(allocation_id)["sha256"].hex()
    assert "wipe_statement" not in allocation_of(scene.url, allocation_id)["release_result"]


def test_no_other_tenant_reads_it(scene: Scene) -> None:
    allocation_id = scene.allocation()

    async def way(context: Context) -> None:
        await provision(context, scene.url, allocation_id)
        await scene.release_with(context, allocation_id)
        with pytest.raises(NotFound):
            await find_wipe_certificate(context.database, allocation_id, uuid4())
        assert await find_wipe_certificate(context.database, allocation_id, None)

    assert scene.run(way) is None


def test_certificates_of_a_node_form_a_chain(scene: Scene) -> None:
    ids = [scene.allocation() for _ in range(4)]

    async def way(context: Context) -> list[VerifiedCertificate]:
        for allocation_id in ids:
            await provision(context, scene.url, allocation_id)
            await release(context, scene.seeded, allocation_id)
            await begin_release(context, allocation_id, "wf")
            task = task_of(scene.url, allocation_id)
            await report(context, task, completed(task, scene.site.release_result(task, wiped())))
        # Real commits side by side: the chain has no fork and no gap.
        await asyncio.gather(*(finish_release(context, allocation_id, "wf") for allocation_id in ids))
        return [await scene.issued(context, allocation_id) for allocation_id in ids]

    found = sorted(scene.run(way), key=lambda one: one.link.number)
    assert [one.link.number for one in found] == [1, 2, 3, 4]
    assert [one.link.previous_sha256 for one in found] == [None, *(one.sha256 for one in found[:-1])]
    assert row_of(scene.url, "select number, encode(sha256, 'hex') as sha256 from wipe_chains") == {
        "number": 4, "sha256": found[-1].sha256,
    }  # fmt: skip
    assert row_of(scene.url, "select count(*) as sets from wipe_key_sets") == {"sets": 1}


def test_the_key_set_is_the_one_of_its_time(scene: Scene) -> None:
    first, second = scene.allocation(), scene.allocation()

    async def way(context: Context) -> list[Any]:
        assert context.signer is not None
        file = scene.directory / "key-set.json"
        for allocation_id in (first, second):
            await provision(context, scene.url, allocation_id)
            await scene.release_with(context, allocation_id)
            later = Site(root=scene.site.root, ca_key=scene.site.ca_key, control_key=scene.site.control_key)
            file.write_text(later.key_set(not_after=None).model_dump_json().replace(" ", "") + "\n")
        return [await find_wipe_certificate(context.database, each, None) for each in (first, second)]

    documents = scene.run(way)
    assert all(KeySetEnvelope.model_validate(document["key_set"]) for document in documents)
    assert documents[0]["key_set"] != documents[1]["key_set"]


def test_a_release_without_a_statement_has_no_certificate(scene: Scene) -> None:
    allocation_id = scene.allocation()

    async def way(context: Context) -> None:
        await provision(context, scene.url, allocation_id)
        await scene.release_with(context, allocation_id, lambda result: {**result, "wipe_statement": None})
        with pytest.raises(WipeCertificateMissing, match="signed no statement"):
            await find_wipe_certificate(context.database, allocation_id, scene.seeded.tenant_id)

    scene.run(way)
    assert allocation_of(scene.url, allocation_id)["state"] == "released"


def test_the_cleanup_of_a_failed_allocation_is_certified(scene: Scene) -> None:
    allocation_id = scene.allocation()

    async def way(context: Context) -> VerifiedCertificate:
        await begin_provisioning(context, allocation_id, "wf")
        task = task_of(scene.url, allocation_id)
        await report(context, task, failed(task, FailureCode.IMAGE_CHECKSUM_MISMATCH))
        await finish_provisioning(context, allocation_id)
        await begin_release(context, allocation_id, "cleanup")
        task = task_of(scene.url, allocation_id)
        await report(context, task, completed(task, scene.site.release_result(task)))
        await finish_release(context, allocation_id, "cleanup")
        return await scene.issued(context, allocation_id)

    assert scene.run(way).predicate.verdict == "nothing_found"
    assert claim_of(scene.url, allocation_id)["occupied"] is False


def altered(**members: Any) -> Callable[[Scene, dict[str, Any]], dict[str, Any]]:
    """The result with other members; the statement stays."""
    return lambda scene, result: {**result, **members}


def about(**members: Any) -> Callable[[Scene, dict[str, Any]], dict[str, Any]]:
    """The result with a statement that the node signed about something else."""

    def change(scene: Scene, result: dict[str, Any]) -> dict[str, Any]:
        task = row_of(scene.url, "select * from node_tasks order by fence desc limit 1")
        return {**result, "wipe_statement": scene.site.release_result(task, wiped(), **members)["wipe_statement"]}

    return change


def of_another_node(scene: Scene, result: dict[str, Any]) -> dict[str, Any]:
    other = uuid4()
    scene.site.enrol(other)
    statement = make_statement(predicate_of(other, wiped()), result["evidence"])
    return {**result, "wipe_statement": scene.site.sign(other, statement)}


def with_a_certificate_nobody_issued(scene: Scene, result: dict[str, Any]) -> dict[str, Any]:
    with connect(scene.url) as connection:
        connection.execute("delete from node_certificates")
    return result


def with_a_revoked_certificate(scene: Scene, result: dict[str, Any]) -> dict[str, Any]:
    with connect(scene.url) as connection:
        connection.execute("update node_certificates set revoked_at = now(), revoked_reason = 'stolen'")
    return result


def broken(scene: Scene, result: dict[str, Any]) -> dict[str, Any]:
    result["wipe_statement"]["signatures"][0]["sig"] = "AAAA"
    return result


FORGERIES = {
    "other-device": altered(evidence={"devices": [wiped("nvme1").model_dump(mode="json")]}),
    "more-evidence": altered(evidence={"devices": [wiped().model_dump(mode="json")], "more": 1}),
    "not-released": altered(released=False),
    "hard-stopped": altered(hard_stopped=True),
    "no-statement": altered(wipe_statement={"payload": "x"}),
    "other-allocation": about(allocation_id=uuid4()),
    "other-task": about(task_id=uuid4()),
    "other-fence": about(fence=1),
    "other-node": of_another_node,
    "not-issued": with_a_certificate_nobody_issued,
    "revoked": with_a_revoked_certificate,
    "bad-signature": broken,
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_statement_is_refused_and_frees_nothing(scene: Scene, forgery: str) -> None:
    allocation_id = scene.allocation()

    async def way(context: Context) -> None:
        await provision(context, scene.url, allocation_id)
        with pytest.raises(Invalid) as refused:
            await scene.release_with(context, allocation_id, lambda result: FORGERIES[forgery](scene, result))
        assert refused.value.extra["errors"][0]["field"].startswith("result.wipe_statement")

    scene.run(way)
    assert claim_of(scene.url, allocation_id)["occupied"] is True
    assert rows_of(scene.url, "select * from wipe_certificates") == []
    assert task_of(scene.url, allocation_id)["state"] == "queued"


GIVEN = {**PROVISIONED, "evidence": {"devices": ["nvme0", "gpu0"]}}


def test_a_device_that_the_allocation_had_and_the_release_does_not_prove_blocks_the_units(scene: Scene) -> None:
    allocation_id = scene.allocation()

    async def way(context: Context) -> None:
        await begin_provisioning(context, allocation_id, "wf")
        task = task_of(scene.url, allocation_id)
        await report(context, task, completed(task, GIVEN))
        await finish_provisioning(context, allocation_id)
        await scene.release_with(context, allocation_id)

    scene.run(way, ONCE)
    stuck = allocation_of(scene.url, allocation_id)
    assert (stuck["state"], claim_of(scene.url, allocation_id)["occupied"]) == ("release_failed", True)
    assert "gpu0" in stuck["failure_detail"]
    assert rows_of(scene.url, "select * from wipe_certificates") == []


def test_proof_of_every_device_that_it_had_frees_them(scene: Scene) -> None:
    allocation_id = scene.allocation()

    async def way(context: Context) -> None:
        await begin_provisioning(context, allocation_id, "wf")
        task = task_of(scene.url, allocation_id)
        await report(context, task, completed(task, GIVEN))
        await finish_provisioning(context, allocation_id)
        await release(context, scene.seeded, allocation_id)
        await begin_release(context, allocation_id, "wf")
        task = task_of(scene.url, allocation_id)
        await report(context, task, completed(task, scene.site.release_result(task, wiped(), wiped("gpu0"))))
        await finish_release(context, allocation_id, "wf")

    scene.run(way, ONCE)
    assert allocation_of(scene.url, allocation_id)["state"] == "released"
    assert scene.row(allocation_id)["number"] == 1


@pytest.mark.parametrize("devices", [[], [7, None], {"a": 1}, None], ids=["none", "no-names", "object", "null"])
def test_a_provision_that_names_no_devices_needs_no_proof(scene: Scene, devices: Any) -> None:
    allocation_id = scene.allocation()

    async def way(context: Context) -> None:
        await begin_provisioning(context, allocation_id, "wf")
        task = task_of(scene.url, allocation_id)
        await report(context, task, completed(task, {**PROVISIONED, "evidence": {"devices": devices}}))
        await finish_provisioning(context, allocation_id)
        await scene.release_with(context, allocation_id, lambda result: dict(WIPED))

    scene.run(way, ONCE)
    assert allocation_of(scene.url, allocation_id)["state"] == "released"
