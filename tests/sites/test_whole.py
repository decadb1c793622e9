"""Operator, control plane, agent of a site and BMC together: look, rotate, pins and passwords."""

from __future__ import annotations

import uuid

from berth.process.sealed_passwords import Purpose, unseal
from tests.sites.stage import FIRST_PASSWORD, USER, Site, Stage


def test_an_agent_describes_machines_and_rotates_their_passwords(stage: Stage, site: Site) -> None:
    site.agent("a")
    site.wait_for_holder("a")
    with stage.machine() as machine:
        site.put_bmc(machine)
        found = stage.done(machine.node_id, "look")
        assert (found["task"]["outcome"], found["task"]["failure"], found["power_state"]) == ("completed", None, "Off")
        assert found["inventory"]["manager"] is not None
        rotated = stage.done(machine.node_id, "rotate")
        assert (rotated["task"]["outcome"], rotated["generation"], rotated["pending_generation"]) == (
            "completed",
            2,
            None,
        )
        assert machine.password != FIRST_PASSWORD
        sealed = stage.fleet.one(
            "select sealed from bmc_credentials where node_id = %s and recipient = %s", machine.node_id, site.id
        )
        purpose = Purpose(uuid.UUID(site.id), uuid.UUID(machine.node_id), 2)
        assert unseal(str(sealed), purpose, uuid.UUID(site.id), site.recovery) == machine.password
        again = stage.done(machine.node_id, "look")
        assert again["task"]["outcome"] == "completed"
        assert set(machine.service.machine.passwords) == {USER}


def test_a_changed_certificate_is_an_operators_decision(stage: Stage, site: Site) -> None:
    site.agent("a")
    site.wait_for_holder("a")
    with stage.machine() as machine:
        site.put_bmc(machine, certificate_sha256="0" * 64)
        found = stage.done(machine.node_id, "look")
        assert found["task"]["outcome"] == "failed"
        assert found["task"]["failure"].startswith("bmc_certificate_changed: ")
        assert machine.pin in found["task"]["failure"], "the operator sees the certificate to compare"
        assert machine.logins() == 0, "nothing was sent to it"
        body = {"site_id": site.id, "url": machine.url, "certificate_sha256": machine.pin, "username": USER}
        stage.admin.put(f"/admin/nodes/{machine.node_id}/bmc", body)
        assert stage.done(machine.node_id, "look")["task"]["outcome"] == "completed"


def test_a_wrong_password_is_named_and_changes_nothing(stage: Stage, site: Site) -> None:
    site.agent("a")
    site.wait_for_holder("a")
    with stage.machine() as machine:
        site.put_bmc(machine, password="not-the-password")
        looked = stage.done(machine.node_id, "look")["task"]
        assert (looked["outcome"], looked["failure"].partition(":")[0]) == ("failed", "bmc_credentials_refused")
        rotated = stage.done(machine.node_id, "rotate")
        assert (rotated["task"]["outcome"], rotated["generation"], rotated["pending_generation"]) == ("failed", 1, 2)
        assert machine.password == FIRST_PASSWORD
        body = site.sealed(machine.node_id, FIRST_PASSWORD, 3)
        found = stage.admin.put(
            f"/admin/nodes/{machine.node_id}/bmc",
            {"site_id": site.id, "url": machine.url, "certificate_sha256": machine.pin, "username": USER, "password": body},
        )  # fmt: skip
        assert (found["generation"], found["pending_generation"]) == (3, None)
        assert stage.done(machine.node_id, "rotate")["task"]["outcome"] == "completed"


def test_an_agent_that_enrolled_later_opens_nothing_until_it_is_resealed(stage: Stage, site: Site) -> None:
    first = site.agent("first")
    site.wait_for_holder("first")
    with stage.machine() as machine:
        site.put_bmc(machine)
        site.agent("second")
        assert stage.done(machine.node_id, "reseal")["task"]["outcome"] == "completed"
        assert len(stage.bmc(machine.node_id)["recipients"]) == 3
        assert machine.logins() == 0
        first.kill()
        site.wait_for_holder("second")
        assert stage.done(machine.node_id, "look")["task"]["outcome"] == "completed"


def test_no_answer_log_or_row_has_the_password(stage: Stage, site: Site) -> None:
    agent = site.agent("a")
    site.wait_for_holder("a")
    with stage.machine() as machine:
        site.put_bmc(machine)
        stage.done(machine.node_id, "rotate")
        secrets = (FIRST_PASSWORD, machine.password)
        logs = [path.read_text(errors="replace") for path in stage.directory.rglob("*.log")]
        rows = stage.fleet.one(
            "select (select string_agg(a::text, ' ') from audit_pending a) || coalesce((select string_agg(o::text, ' ')"
            " from operations o), '') || (select string_agg(t::text, ' ') from bmc_tasks t)"
        )
        for text in (*logs, str(rows), agent.log.read_text()):
            assert not any(secret in text for secret in secrets)
