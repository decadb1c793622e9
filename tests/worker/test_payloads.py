"""What Temporal stores is encrypted under the first key, read under any, and readable where an earlier version wrote it."""

from __future__ import annotations

import asyncio
import base64
import os
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from prometheus_client import REGISTRY
from structlog.testing import capture_logs
from temporalio import activity, workflow
from temporalio.api.common.v1 import Payload
from temporalio.client import (
    Client,
    Interceptor,
    OutboundInterceptor,
    SignalWorkflowInput,
    StartWorkflowInput,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
)
from temporalio.common import HeaderCodecBehavior, RawValue
from temporalio.converter import ActivitySerializationContext
from temporalio.exceptions import ApplicationError
from temporalio.worker import Replayer, Worker

from berth.local.servers import LocalTemporal
from tests.support.waiting import async_wait_for
from worker.activities.messages import StepInput, StepResult
from worker.app import sandbox
from worker.payloads import (
    BOUND,
    ENCODING,
    KEY_ID,
    EncryptingCodec,
    HeaderEncryption,
    OfWorkflow,
    PayloadKeys,
    PayloadUnbound,
    PayloadUnreadable,
    encrypting_converter,
    load_payload_keys,
)
from worker.workflows.attempts import TASK_FINISHED
from worker.workflows.provisioning import ProvisioningWorkflow
from worker.workflows.starting import WorkflowName, rescue_workflow_id

OLD, NEW, OTHER = (bytes([number]) * 32 for number in (1, 2, 3))
MINE, OTHERS = OfWorkflow("default", "provisioning-1"), OfWorkflow("default", "provisioning-2")
PLAIN = Payload(metadata={ENCODING: b"json/plain"}, data=b'"of an earlier version"')


def unreadable(reason: str) -> float:
    """How many payloads this process could not read for this reason."""
    return REGISTRY.get_sample_value("berth_worker_payloads_unreadable_total", {"reason": reason}) or 0.0


def test_the_first_key_encrypts_and_every_key_decrypts() -> None:
    before, during = PayloadKeys([OLD]), PayloadKeys([NEW, OLD])
    of_old, of_new = before.encrypt(PLAIN, MINE), during.encrypt(PLAIN, MINE)
    assert of_old.metadata[KEY_ID] != of_new.metadata[KEY_ID]
    assert during.decrypt(of_old, MINE) == during.decrypt(of_new, MINE) == PLAIN
    assert PayloadKeys([NEW]).decrypt(of_new, MINE) == PLAIN
    assert b"earlier" not in of_new.SerializeToString()
    assert during.encrypt(PLAIN, MINE).data != of_new.data, "each has another nonce"


def earlier(keys: bytes, payload: Payload) -> Payload:
    """The payload as versions encrypted it that bound it to no workflow."""
    nonce = os.urandom(12)
    sealed = AESGCM(keys).encrypt(nonce, payload.SerializeToString(), b"berth: payloads of Temporal")
    key_id = PayloadKeys([keys]).encrypt(payload, MINE).metadata[KEY_ID]
    return Payload(metadata={ENCODING: b"binary/encrypted", KEY_ID: key_id}, data=nonce + sealed)


@pytest.mark.parametrize(
    "other",
    [OTHERS, OfWorkflow("other", MINE.workflow_id), OfWorkflow("default1:p", "rovisioning-1"), OfWorkflow("", "default"), None],
)  # fmt: skip
def test_a_payload_is_read_in_its_own_workflow_alone(other: OfWorkflow | None) -> None:
    before, keys = unreadable("altered"), PayloadKeys([NEW])
    sealed = keys.encrypt(PLAIN, MINE)
    with pytest.raises(PayloadUnreadable, match="belongs to another workflow"):
        keys.decrypt(sealed, other)
    assert keys.decrypt(sealed, MINE) == PLAIN
    assert unreadable("altered") == before + 1


@pytest.mark.parametrize("payload", [PLAIN, Payload(), earlier(NEW, PLAIN)])
def test_what_earlier_versions_wrote_is_read_only_where_that_is_allowed(payload: Payload) -> None:
    before = unreadable("earlier_version")
    with pytest.raises(PayloadUnreadable, match="BERTH_TEMPORAL_EARLIER_PAYLOADS_ALLOWED"):
        PayloadKeys([NEW]).decrypt(payload, MINE)
    assert unreadable("earlier_version") == before + 1
    assert PayloadKeys([NEW], earlier_allowed=True).decrypt(payload, MINE) in (PLAIN, Payload())


def test_a_payload_does_not_pass_for_an_earlier_one() -> None:
    """Without its mark it is not what an earlier version would have encrypted."""
    keys = PayloadKeys([NEW], earlier_allowed=True)
    sealed = keys.encrypt(PLAIN, MINE)
    del sealed.metadata[BOUND]
    with pytest.raises(PayloadUnreadable, match="altered"):
        keys.decrypt(sealed, OTHERS)


def test_nothing_is_stored_outside_of_a_workflow() -> None:
    codec = EncryptingCodec(PayloadKeys([NEW]))
    with pytest.raises(PayloadUnbound):
        asyncio.run(codec.encode([PLAIN]))
    activity_alone = ActivitySerializationContext("default", "1", None, None, None, None, False)
    with pytest.raises(PayloadUnbound):
        asyncio.run(codec.with_context(activity_alone).encode([PLAIN]))


def test_a_payload_of_an_unknown_key_is_a_failure_a_log_line_and_a_metric() -> None:
    before, sealed = unreadable("unknown_key"), PayloadKeys([OTHER]).encrypt(PLAIN, MINE)
    key_id = sealed.metadata[KEY_ID].decode()
    with capture_logs() as lines, pytest.raises(PayloadUnreadable, match=f"key id is '{key_id}'"):
        PayloadKeys([NEW, OLD]).decrypt(sealed, MINE)
    assert lines == [{"event": "payload_unreadable", "log_level": "error", "reason": "unknown_key", "key_id": key_id}]
    assert unreadable("unknown_key") == before + 1


@pytest.mark.parametrize(
    "change", [lambda data: data[:-1], lambda data: data[:5], lambda data: b"", lambda data: data[::-1]]
)
def test_an_altered_payload_is_refused(change: Callable[[bytes], bytes]) -> None:
    before, sealed = unreadable("altered"), PayloadKeys([NEW]).encrypt(PLAIN, MINE)
    sealed.data = change(sealed.data)
    with pytest.raises(PayloadUnreadable, match="altered"):
        PayloadKeys([NEW]).decrypt(sealed, MINE)
    assert unreadable("altered") == before + 1


def test_digests_of_tenants_depend_on_the_key() -> None:
    tenant = str(uuid.uuid4())
    digest = PayloadKeys([NEW, OLD]).digest(tenant)
    assert digest == PayloadKeys([NEW]).digest(tenant) != PayloadKeys([OLD]).digest(tenant)
    assert digest != PayloadKeys([NEW]).digest(str(uuid.uuid4()))
    assert len(digest) <= 64, "Temporal's bound on a fairness key"


@pytest.mark.parametrize("name", ["provisioning", "release"])
def test_the_id_of_a_rescue_does_not_show_the_allocation(name: WorkflowName) -> None:
    allocation_id = uuid.uuid4()
    found = rescue_workflow_id(name, allocation_id)
    assert found == rescue_workflow_id(name, allocation_id) != rescue_workflow_id(name, uuid.uuid4())
    assert str(allocation_id) not in found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no payload key"),
        ("not base64!\n", "line 1 of keys is not base64"),
        (base64.b64encode(OLD).decode() + "\nAAAA\n", "line 2 of keys holds 3 bytes; a payload key has 32"),
    ],
)
def test_a_file_of_keys_that_cannot_be_used_is_named_without_its_content(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "keys").write_text(text)
    with pytest.raises(ValueError, match=said) as refused:
        load_payload_keys(tmp_path / "keys")
    assert base64.b64encode(OLD).decode() not in str(refused.value)


class AddsHeader(Interceptor):
    """Sends a header with every start and signal, as tracing does."""

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:  # noqa: A002
        return _AddingHeader(next)


class _AddingHeader(OutboundInterceptor):
    async def start_workflow(self, input: StartWorkflowInput) -> WorkflowHandle[Any, Any]:  # noqa: A002
        return await super().start_workflow(replace(input, headers={"trace": PLAIN}))

    async def signal_workflow(self, input: SignalWorkflowInput) -> None:  # noqa: A002
        await super().signal_workflow(replace(input, headers={"trace": PLAIN}))


@dataclass
class Scene:
    """One task queue of the session's Temporal."""

    address: str
    queue: str = field(default_factory=lambda: f"q-{uuid.uuid4().hex}")
    begun: list[str] = field(default_factory=list)

    async def client(self, *given: bytes, earlier_allowed: bool = False) -> Client:
        """A client with these keys; without any, that of an earlier version."""
        if not given:
            return await Client.connect(self.address)
        keys = PayloadKeys(given, earlier_allowed=earlier_allowed)
        return await Client.connect(
            self.address, data_converter=encrypting_converter(keys), header_codec_behavior=HeaderCodecBehavior.CODEC,
            interceptors=[AddsHeader(), HeaderEncryption(keys, "default")],
        )  # fmt: skip

    @asynccontextmanager
    async def working(self, *keys: bytes, earlier_allowed: bool = False) -> AsyncIterator[None]:
        """A worker with these keys, whose commands wait for a task once and then conclude."""

        @activity.defn(name="begin_provisioning")
        async def begin(step: StepInput) -> StepResult:
            self.begun.append(step.allocation_id)
            return StepResult("begun", seconds=600, task_id=f"task of {step.allocation_id}")

        @activity.defn(name="finish_provisioning")
        async def finish(step: StepInput) -> StepResult:
            return StepResult("concluded", state=f"end of {step.allocation_id}")

        async with Worker(
            await self.client(*keys, earlier_allowed=earlier_allowed),
            task_queue=self.queue,
            workflows=[ProvisioningWorkflow, FailingWorkflow],
            activities=[begin, finish],
            workflow_runner=sandbox(),
            no_remote_activities=True,
            sticky_queue_schedule_to_start_timeout=timedelta(seconds=1),
        ):
            yield

    async def start(self, client: Client, allocation_id: str) -> WorkflowHandle[ProvisioningWorkflow, StepResult]:
        """A workflow whose allocation is this text."""
        return await client.start_workflow(
            ProvisioningWorkflow.run, allocation_id, id=f"provisioning-{uuid.uuid4()}", task_queue=self.queue,
            task_timeout=timedelta(seconds=2), memo={"of": allocation_id},
        )  # fmt: skip


@workflow.defn(name="failing", sandboxed=False)
class FailingWorkflow:
    """Fails with what it was given."""

    @workflow.run
    async def run(self, text: str) -> None:
        raise ApplicationError(f"message {text}", f"detail {text}", type="Refused", non_retryable=True)


def play(server: LocalTemporal, scenario: Callable[[Scene], Awaitable[None]]) -> None:
    """Run a scenario."""

    async def run() -> None:
        await scenario(Scene(server.address))

    asyncio.run(run())


async def finish(handle: WorkflowHandle[ProvisioningWorkflow, StepResult], text: str) -> None:
    """Signal the end of the task; the workflow concludes."""
    await handle.signal(TASK_FINISHED, f"task of {text}")
    assert await handle.result() == StepResult("concluded", state=f"end of {text}")


async def stored(handle: WorkflowHandle[ProvisioningWorkflow, StepResult]) -> bytes:
    """What Temporal stores of a run: history and description."""
    description, history = await handle.describe(), await handle.fetch_history()
    messages = [description.raw_description, *history.events]
    return b"".join(message.SerializeToString() for message in messages)


def test_inputs_results_signals_and_memos_are_stored_encrypted(temporal_server: LocalTemporal) -> None:
    async def scenario(scene: Scene) -> None:
        client = await scene.client(NEW)
        async with scene.working(NEW):
            handle = await scene.start(client, "secret-text")
            await finish(handle, "secret-text")
        found = await stored(handle)
        assert b"secret-text" not in found
        assert b"trace" in found
        assert b"earlier version" not in found, "headers are encrypted as well"
        assert await (await handle.describe()).memo_value("of") == "secret-text"
        history = await handle.fetch_history()
        replayer = Replayer(
            workflows=[ProvisioningWorkflow], workflow_runner=sandbox(), data_converter=client.data_converter,
            namespace="default",
        )  # fmt: skip
        assert (await replayer.replay_workflow(history)).replay_failure is None

    play(temporal_server, scenario)


def test_messages_and_details_of_failures_are_stored_encrypted(temporal_server: LocalTemporal) -> None:
    async def scenario(scene: Scene) -> None:
        client = await scene.client(NEW)
        async with scene.working(NEW):
            handle = await client.start_workflow(
                FailingWorkflow.run, "secret-text", id=str(uuid.uuid4()), task_queue=scene.queue
            )
            with pytest.raises(WorkflowFailureError) as failed:
                await handle.result()
        cause = failed.value.cause
        assert isinstance(cause, ApplicationError)
        assert (str(cause), cause.details) == ("Refused: message secret-text", ("detail secret-text",))
        history = await handle.fetch_history()
        assert not any(b"secret-text" in event.SerializeToString() for event in history.events)

    play(temporal_server, scenario)


def test_a_workflow_that_an_earlier_version_started_goes_on(temporal_server: LocalTemporal) -> None:
    """Its input, and a signal that a worker of the earlier version sends meanwhile, are not encrypted."""

    async def scenario(scene: Scene) -> None:
        earlier = await scene.client()
        handle = await scene.start(earlier, "from-before")
        async with scene.working(NEW, earlier_allowed=True):
            await async_wait_for(lambda: scene.begun == ["from-before"], "the workflow to begin")
            await handle.signal(TASK_FINISHED, "task of from-before")
            result = (await scene.client(NEW)).get_workflow_handle_for(ProvisioningWorkflow.run, handle.id)
            assert await result.result() == StepResult("concluded", state="end of from-before")

    play(temporal_server, scenario)


def test_keys_rotate_while_a_workflow_runs(temporal_server: LocalTemporal) -> None:
    async def scenario(scene: Scene) -> None:
        handle = await scene.start(await scene.client(OLD), "one")
        async with scene.working(OLD, NEW):
            await async_wait_for(lambda: scene.begun == ["one"], "the workflow to begin")
        async with scene.working(NEW, OLD):
            moved = (await scene.client(NEW, OLD)).get_workflow_handle_for(ProvisioningWorkflow.run, handle.id)
            await finish(moved, "one")
        assert scene.begun == ["one"], "it went on, and did not begin anew"

    play(temporal_server, scenario)


@pytest.mark.full
def test_an_unknown_key_fails_the_step_without_a_hot_loop_and_the_key_heals_it(temporal_server: LocalTemporal) -> None:
    async def scenario(scene: Scene) -> None:
        before, began = unreadable("unknown_key"), time.monotonic()
        handle = await scene.start(await scene.client(OTHER), "one")
        async with scene.working(NEW):
            await async_wait_for(lambda: time.monotonic() > began + 3, "three seconds of attempts")
        assert 2 <= unreadable("unknown_key") - before <= 8
        assert scene.begun == []
        client = await scene.client(NEW, OTHER)
        async with scene.working(NEW, OTHER):
            await async_wait_for(lambda: scene.begun == ["one"], "the workflow to begin")
            await finish(client.get_workflow_handle_for(ProvisioningWorkflow.run, handle.id), "one")

    play(temporal_server, scenario)


def test_a_payload_of_another_workflow_is_refused(
    temporal_server: LocalTemporal,
) -> None:
    """A writer of Temporal's database copies the input of one workflow, here with its own client, into another's."""

    async def scenario(scene: Scene) -> None:
        before = unreadable("altered")
        client, plain = await scene.client(NEW), await scene.client()
        handle = await scene.start(client, "mine")
        async for event in handle.fetch_history_events():
            if event.HasField("workflow_execution_started_event_attributes"):
                (copied,) = event.workflow_execution_started_event_attributes.input.payloads
                break
        forged = await plain.start_workflow(
            "provisioning", id=f"provisioning-{uuid.uuid4()}", task_queue=scene.queue, args=[RawValue(copied)],
            task_timeout=timedelta(seconds=2),
        )  # fmt: skip
        async with scene.working(NEW):
            await async_wait_for(lambda: scene.begun == ["mine"], "the workflow of the payload to begin")
            await async_wait_for(lambda: unreadable("altered") > before, "the copy to be refused")
            await finish(handle, "mine")
            assert scene.begun == ["mine"]
            assert (await forged.describe()).status is WorkflowExecutionStatus.RUNNING, "Temporal repeats its step"
        await forged.terminate()

    play(temporal_server, scenario)
