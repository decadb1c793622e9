"""Operator, control plane, agent of a site and BMC together: look, rotate, pins and passwords."""

from __future__ import annotations

import socket
import uuid

import pytest

from berth.process.sealed_passwords import Purpose, unseal
from tests.sites.stage import FIRST_PASSWORD, USER, Site, Stage
from tests.support.waiting import wait_for

FORGED = """
insert into bmc_tasks (node_id, site_id, kind, requested_by, waits_for, waits_since, waits_until, fence, envelope, issued_at)
select node_id, site_id, kind, 'forger', 'site_agent', clock_timestamp(), clock_timestamp() + interval '10 minutes', fence,
       envelope, issued_at from bmc_tasks where node_id = %s and id = %s
"""


def test_an_agent_describes_machines_and_rotates_their_passwords(stage: Stage, served: Site) -> None:
    with stage.machine() as machine:
        served.put_bmc(machine)
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
            "select sealed from bmc_credentials where node_id = %s and recipient = %s", machine.node_id, served.id
        )
        purpose = Purpose(uuid.UUID(served.id), uuid.UUID(machine.node_id), 2)
        assert unseal(str(sealed), purpose, uuid.UUID(served.id), served.recovery) == machine.password
        again = stage.done(machine.node_id, "look")
        assert again["task"]["outcome"] == "completed"
        assert set(machine.service.machine.passwords) == {USER}


def test_a_changed_certificate_is_an_operators_decision(stage: Stage, served: Site) -> None:
    with stage.machine() as machine:
        served.put_bmc(machine, certificate_sha256="0" * 64)
        found = stage.done(machine.node_id, "look")
        assert found["task"]["outcome"] == "failed"
        assert found["task"]["failure"].startswith("bmc_certificate_changed: ")
        assert machine.pin in found["task"]["failure"], "the operator sees the certificate to compare"
        assert machine.logins() == 0, "nothing was sent to it"
        body = {"site_id": served.id, "url": machine.url, "certificate_sha256": machine.pin, "username": USER}
        stage.admin.put(f"/admin/nodes/{machine.node_id}/bmc", body)
        assert stage.done(machine.node_id, "look")["task"]["outcome"] == "completed"


def test_a_wrong_password_is_named_and_changes_nothing(stage: Stage, served: Site) -> None:
    with stage.machine() as machine:
        served.put_bmc(machine, password="not-the-password")
        looked = stage.done(machine.node_id, "look")["task"]
        assert (looked["outcome"], looked["failure"].partition(":")[0]) == ("failed", "bmc_credentials_refused")
        rotated = stage.done(machine.node_id, "rotate")
        assert (rotated["task"]["outcome"], rotated["generation"], rotated["pending_generation"]) == ("failed", 1, 2)
        assert machine.password == FIRST_PASSWORD
        body = served.sealed(machine.node_id, FIRST_PASSWORD, 3)
        found = stage.admin.put(
            f"/admin/nodes/{machine.node_id}/bmc",
            {"site_id": served.id, "url": machine.url, "certificate_sha256": machine.pin, "username": USER, "password": body},
        )  # fmt: skip
        assert (found["generation"], found["pending_generation"]) == (3, None)
        assert stage.done(machine.node_id, "rotate")["task"]["outcome"] == "completed"


@pytest.mark.full
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


@pytest.mark.full
def test_no_answer_log_or_row_has_the_password(stage: Stage, served: Site) -> None:
    with stage.machine() as machine:
        served.put_bmc(machine)
        stage.done(machine.node_id, "rotate")
        secrets = (FIRST_PASSWORD, machine.password)
        logs = [path.read_text(errors="replace") for path in stage.directory.rglob("*.log")]
        rows = stage.fleet.one(
            "select (select string_agg(a::text, ' ') from audit_pending a) || coalesce((select string_agg(o::text, ' ')"
            " from operations o), '') || (select string_agg(t::text, ' ') from bmc_tasks t)"
        )
        for text in (*logs, str(rows), served.agents[0].log.read_text()):
            assert not any(secret in text for secret in secrets)


@pytest.mark.full
def test_metrics_and_log_of_an_agent_follow_its_tasks(stage: Stage, served: Site) -> None:
    agent, looks = served.agents[0], "berth_site_agent_tasks_total"
    fence = served.read()["lease"]["fence"]
    assert (agent.metric("berth_site_agent_lease_held"), agent.metric("berth_site_agent_lease_fence")) == (1, fence)
    completed, failed = (agent.metric(looks, type="metal.look", outcome=one) for one in ("completed", "failed"))
    handed_out = stage.metric("berth_site_tasks_leased_total")
    with stage.machine() as machine, socket.create_server(("127.0.0.1", 0)) as silent:
        served.put_bmc(machine)
        old = stage.done(machine.node_id, "look")["task"]["id"]
        assert agent.metric(looks, type="metal.look", outcome="completed") == completed + 1
        assert agent.metric("berth_site_agent_tasks_running") == 0
        where = {
            "url": f"https://127.0.0.1:{silent.getsockname()[1]}",
            "certificate_sha256": machine.pin,
            "username": USER,
        }
        stage.admin.put(f"/admin/nodes/{machine.node_id}/bmc", {"site_id": served.id, **where})
        stage.request(machine.node_id, "look")
        wait_for(lambda: agent.metric("berth_site_agent_tasks_running") == 1, "the task runs")
        silent.close()
        failure = stage.ended(machine.node_id)["task"]["failure"]
        assert failure.startswith("bmc_unreachable: ")
        assert agent.metric(looks, type="metal.look", outcome="failed") == failed + 1
        assert stage.metric("berth_site_tasks_leased_total") == handed_out + 2
        stage.fleet.connection.execute(FORGED, (machine.node_id, old))
        rejected = {"reason": "wrong_task_id"}
        wait_for(
            lambda: agent.metric("berth_site_agent_envelopes_rejected_total", **rejected) >= 1, "it is rejected", 30
        )
        stage.fleet.connection.execute("delete from bmc_tasks where requested_by = 'forger'")
    for line in ("serving", "lease_taken", "bmc_task_ended", "reported", "envelope_rejected"):
        assert agent.says(f'"event":"{line}"'), line
