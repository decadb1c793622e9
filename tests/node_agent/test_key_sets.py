"""A control plane cannot plant a key that signs tasks: the agent uses only key sets that its pinned root has signed."""

from __future__ import annotations

import base64
import datetime as dt
import json
import uuid
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from berth.local.servers import free_port
from node_agent.admission import Trust, Untrusted, admit
from node_agent.clock import ServerClock
from node_agent.journal_state import JournalState
from node_agent.key_set import REFUSALS, KeySet, KeySetRefused, sign_key_set, task_key
from node_agent.key_sets import KeySets
from node_agent.metrics import AgentMetrics
from node_agent.problems import CannotStart
from node_agent.protocol import Credentials, HandedOutTask, TaskBody, TaskType, sign_task
from tests.node_agent.agents import AgentProcess, Tenant
from tests.node_agent.authority import Authority
from tests.node_agent.conftest import Play
from tests.node_agent.control_plane import ControlPlane

ROOT, OTHER_ROOT = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
KEY, PLANTED = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
CA = Authority.new().pem
NOW = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


def signed(serial: int, *keys: Ed25519PrivateKey, root: Ed25519PrivateKey = ROOT) -> bytes:
    """A key set with these task keys."""
    content = KeySet(serial=serial, task_keys=[task_key(key.public_key()) for key in keys], node_cas=[CA])
    return sign_key_set(content, root).model_dump_json().encode()


def changed(content: bytes, **members: object) -> bytes:
    """The envelope with other members."""
    return json.dumps({**json.loads(content), **members}).encode()


def with_payload(content: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """The envelope with another payload under the old signature."""
    payload = base64.b64decode(json.loads(content)["payload"])
    return changed(content, payload=base64.b64encode(change(payload)).decode())


GOOD = signed(8, PLANTED)
REFUSED: dict[str, tuple[bytes, str]] = {
    "unsigned": (changed(GOOD, signatures=[]), "malformed"),
    "signed by another root": (signed(8, PLANTED, root=OTHER_ROOT), "unknown_root"),
    "in the name of the root": (
        changed(GOOD, signatures=[{**json.loads(GOOD)["signatures"][0], "sig": base64.b64encode(bytes(64)).decode()}]),
        "bad_signature",
    ),
    "another key in it": (with_payload(GOOD, lambda text: text.replace(b'"serial":8', b'"serial":9')), "bad_signature"),
    "an older serial": (signed(6, PLANTED), "older_serial"),
    "the serial in use": (signed(7, PLANTED), "serial_reused"),
    "truncated": (GOOD[: len(GOOD) // 2], "malformed"),
    "empty": (b"", "malformed"),
    "no JSON": (b"\xff\x00", "malformed"),
    "huge": (changed(GOOD, padding="x" * 70_000), "too_large"),
    "deep": (b"[" * 10_000, "malformed"),
    "with another member": (changed(GOOD, note="x"), "malformed"),
}  # fmt: skip


@pytest.fixture
def roots(tmp_path: Path) -> Path:
    """The file of the pinned root."""
    file = tmp_path / "roots.pem"
    file.write_bytes(ROOT.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return file


def key_sets(roots: Path) -> KeySets:
    """The key sets of an agent that starts."""
    return KeySets(roots.parent, roots, AgentMetrics())


@pytest.mark.parametrize("name", REFUSED)
def test_a_planted_key_set_is_refused_and_the_set_in_use_stays(roots: Path, name: str) -> None:
    content, reason = REFUSED[name]
    sets = key_sets(roots)
    assert sets.offer(signed(7, KEY)) is True
    with pytest.raises(KeySetRefused) as refused:
        sets.offer(content)
    assert (refused.value.reason, sets.refusal) == (reason, reason)
    for later in (sets, key_sets(roots)):
        assert later.current is not None
        assert [key.key_id for key in later.current.task_keys] == [task_key(KEY.public_key()).key_id]


def test_every_reason_is_tested() -> None:
    assert {reason for _, reason in REFUSED.values()} | {"missing"} == set(REFUSALS)


def test_a_first_set_is_refused_too_and_nothing_is_stored(roots: Path) -> None:
    sets = key_sets(roots)
    for content in (None, signed(8, PLANTED, root=OTHER_ROOT)):
        with pytest.raises(KeySetRefused):
            sets.offer(content)
    assert sets.current is None
    assert key_sets(roots).current is None


def test_a_newer_set_is_used_and_the_same_one_changes_nothing(roots: Path) -> None:
    sets = key_sets(roots)
    assert sets.is_wanted(1)
    sets.offer(signed(7, KEY))
    assert not sets.is_wanted(7)
    assert not sets.is_wanted(6)
    assert sets.is_wanted(8)
    assert sets.offer(signed(7, KEY)) is False
    with pytest.raises(KeySetRefused):
        sets.offer(signed(6, KEY))
    assert not sets.is_wanted(9), "a set that was refused a moment ago is not fetched at each heartbeat"
    assert sets.offer(signed(9, KEY, PLANTED)) is True
    assert (sets.refusal, sets.serial) == (None, 9)


@pytest.mark.parametrize("damage", [b"", b"{", GOOD])
def test_a_damaged_set_on_disk_brings_no_older_serial_back(roots: Path, damage: bytes) -> None:
    key_sets(roots).offer(signed(9, KEY))
    (roots.parent / "identity" / "key-set.json").write_bytes(damage[:-3])
    sets = key_sets(roots)
    assert sets.current is None
    with pytest.raises(KeySetRefused) as refused:
        sets.offer(signed(8, PLANTED))
    assert refused.value.reason == "older_serial"
    assert sets.offer(signed(9, KEY)) is True


def test_a_damaged_serial_matters_only_without_a_set(roots: Path) -> None:
    key_sets(roots).offer(signed(9, KEY))
    (roots.parent / "identity" / "key-set-serial").write_text("nine")
    assert key_sets(roots).serial == 9
    (roots.parent / "identity" / "key-set.json").unlink()
    with pytest.raises(CannotStart, match="write the serial of the newest key set into it"):
        key_sets(roots)


@pytest.mark.parametrize("content", ["", "no key", "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"])
def test_an_agent_without_a_root_does_not_start(roots: Path, content: str) -> None:
    roots.write_text(content)
    with pytest.raises(CannotStart, match="BERTH_ROOT_KEYS_FILE"):
        key_sets(roots)
    roots.unlink()
    with pytest.raises(CannotStart, match="BERTH_ROOT_KEYS_FILE"):
        key_sets(roots)


def test_two_roots_may_be_pinned_while_the_root_is_replaced(roots: Path) -> None:
    sets = key_sets(roots)
    sets.offer(signed(7, KEY))
    other = OTHER_ROOT.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    roots.write_bytes(roots.read_bytes() + other)
    sets = key_sets(roots)
    assert sets.offer(signed(8, KEY, root=OTHER_ROOT)) is True
    roots.write_bytes(other)
    assert key_sets(roots).serial == 8


def test_a_key_signs_only_between_its_times() -> None:
    node, limited = uuid.uuid4(), task_key(KEY.public_key()).model_copy(
        update={"not_before": NOW, "not_after": NOW + dt.timedelta(hours=1)}
    )  # fmt: skip
    key_set = KeySet(serial=1, task_keys=[limited], node_cas=[CA])
    credentials = Credentials(
        node_id=node, node_epoch=1, certificate_pem="", ca_pem="", node_api_url="", verifying_keys=[], server_time=NOW
    )
    trust = Trust.of(credentials, key_set)
    body = TaskBody(
        task_id=uuid.uuid4(), type=TaskType.HEALTH_PROBE, node_id=node, node_epoch=1, allocation_id=None, fence=1,
        parameters={}, not_before=NOW - dt.timedelta(days=1), expires_at=NOW + dt.timedelta(days=1), key_id=limited.key_id,
    )  # fmt: skip
    handed = HandedOutTask(task_id=body.task_id, envelope=sign_task(body, KEY))
    verdicts = []
    for seconds in (-1, 0, 3599, 3600):
        clock = ServerClock(monotonic=lambda: 0.0)
        clock.observe(NOW + dt.timedelta(seconds=seconds))
        verdicts.append(admit(handed, trust, JournalState(), clock) == Untrusted("key_not_valid_now"))
    assert verdicts == [True, False, False, True]


async def metrics_of(port: int) -> str:
    """The agent's metrics."""
    async with httpx.AsyncClient() as client:
        return (await client.get(f"http://127.0.0.1:{port}/metrics")).text


async def plant(plane: ControlPlane, tenant: Tenant, content: bytes) -> uuid.UUID:
    """Carry this content, announce a newer set, and hand out a task that the planted key has signed."""
    plane.key_set, plane.announced_serial = content, 99
    body = plane.body(TaskType.VM_PROVISION, tenant.provision([0]), uuid.uuid4())
    body = body.model_copy(update={"key_id": task_key(PLANTED.public_key()).key_id})
    return await plane.hand_out(body, key=PLANTED)


@pytest.mark.full
def test_no_task_of_a_planted_key_runs_and_the_refusal_is_reported(play: Play) -> None:
    """The attack of a control plane that was taken over: it carries its key in every form, and signs a task with it."""
    port = free_port()

    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        ca = [plane.authority.pem]
        planted = [task_key(PLANTED.public_key())]
        other_root = sign_key_set(KeySet(serial=99, task_keys=planted, node_cas=ca), OTHER_ROOT)
        replayed = plane.signed_key_set(1, PLANTED)
        huge = b" " * 40_000_000
        for content in (
            other_root.model_dump_json().encode(),
            replayed,
            other_root.model_dump_json().encode()[:99],
            huge,
        ):
            requests = plane.key_set_requests
            task = await plant(plane, tenant, content)
            await plane.until(lambda before=requests: plane.key_set_requests > before)  # type: ignore[misc]
            # The agent goes on with what the key of the root's set has signed, and reports nothing of the planted one.
            probe = await plane.hand_out(plane.body(TaskType.HEALTH_PROBE, {}))
            assert (await plane.result_of(probe)).outcome == "completed"
            assert not plane.results[task]
        await plane.until(lambda: plane.heartbeats[-1].key_set_refusal is not None)
        assert plane.heartbeats[-1].key_set_serial == 1
        assert not (agent.sandbox / "allocations").exists() or not list((agent.sandbox / "allocations").iterdir())
        text = await metrics_of(port)
        for reason in ("unknown_root", "serial_reused", "malformed", "too_large"):
            assert f'berth_agent_key_sets_refused_total{{reason="{reason}"}}' in text
        assert 'berth_agent_envelopes_rejected_total{reason="unknown_key"}' in text
        assert "berth_agent_key_set_serial 1.0" in text
        assert '"event":"key_set_refused"' in agent.log

    play(scenario, BERTH_METRICS_PORT=str(port), BERTH_AGENT_WAIT_SECONDS="0.5")


@pytest.mark.parametrize("at", ["enrolment", "renewal"])
def test_credentials_with_a_planted_key_set(play: Play, at: str) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        planted = sign_key_set(
            KeySet(serial=99, task_keys=[task_key(PLANTED.public_key())], node_cas=[plane.authority.pem]), OTHER_ROOT
        )
        content = planted.model_dump_json().encode()
        if at == "enrolment":
            plane.key_set = content
            agent.start(BERTH_ENROLMENT_TOKEN=plane.new_token())
            assert await agent.exit_status() == 1
            assert "key set is refused (unknown_root" in agent.log.strip().splitlines()[-1]
            assert plane.heartbeats == []
            return
        plane.certificate_life = dt.timedelta(hours=2)
        plane.certificate_age = dt.timedelta(hours=1) - dt.timedelta(seconds=2)
        agent.start(BERTH_ENROLMENT_TOKEN=plane.new_token())
        await plane.until(lambda: plane.waits > 0)
        plane.key_set, plane.certificate_age = content, dt.timedelta(0)
        await plane.until(lambda: len(plane.renewals) == 1)
        await plane.until(lambda: plane.heartbeats[-1].key_set_refusal == "unknown_root")
        probe = await plane.hand_out(plane.body(TaskType.HEALTH_PROBE, {}))
        assert (await plane.result_of(probe)).outcome == "completed"
        assert len(plane.renewals) == 1, "the renewed certificate is used"

    play(scenario, started=False)


@pytest.mark.full
def test_the_task_key_is_replaced_with_overlap_while_an_agent_works_and_nothing_enrols_again(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        old, new = plane.signing_key, Ed25519PrivateKey.generate()

        async def works_with(key: Ed25519PrivateKey) -> None:
            plane.signing_key = key
            probe = await plane.hand_out(plane.body(TaskType.HEALTH_PROBE, {}))
            assert (await plane.result_of(probe)).outcome == "completed"

        plane.carry(2, old, new)
        await works_with(old)
        await plane.until(lambda: plane.heartbeats[-1].key_set_serial == 2)
        await works_with(new)
        await works_with(old)
        plane.carry(3, new)
        await plane.until(lambda: plane.heartbeats[-1].key_set_serial == 3)
        await works_with(new)
        plane.signing_key = old
        retired = await plane.hand_out(plane.body(TaskType.HEALTH_PROBE, {}))
        await works_with(new)
        assert not plane.results[retired]
        agent.kill()
        waits = plane.waits
        agent.start()
        await plane.until(lambda: plane.waits > waits)
        await works_with(new)
        assert (len(plane.enrolments), plane.renewals) == (1, [])

    play(scenario, BERTH_AGENT_WAIT_SECONDS="0.5")


@pytest.mark.full
def test_a_node_that_enrolled_with_the_version_before_fetches_its_first_set(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        agent.kill()
        for name in ("key-set.json", "key-set-serial"):
            (agent.state_dir / "identity" / name).unlink()
        waits = plane.waits
        agent.start()
        await plane.until(lambda: plane.waits > waits)
        probe = await plane.hand_out(plane.body(TaskType.HEALTH_PROBE, {}))
        assert (await plane.result_of(probe)).outcome == "completed"
        assert (len(plane.enrolments), plane.renewals) == (1, [])

    play(scenario)


def test_a_ca_that_the_control_plane_plants_is_not_trusted(play: Play) -> None:
    """The CA in the credentials is for agents of the version before; this agent trusts those of the key set alone."""

    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        plane.planted_ca = Authority.new().pem
        agent.start(BERTH_ENROLMENT_TOKEN=plane.new_token())
        await plane.until(lambda: plane.waits > 0)
        probe = await plane.hand_out(plane.body(TaskType.HEALTH_PROBE, {}))
        assert (await plane.result_of(probe)).outcome == "completed"

    play(scenario, started=False)
