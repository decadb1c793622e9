"""Encrypts what Temporal stores: inputs, results, signals, headers, memos and the texts of failures.

AES-256-GCM under a key of `BERTH_TEMPORAL_PAYLOAD_KEY_FILE`: the first key encrypts, all decrypt. A payload names its key
by id in its metadata, in the form of Temporal's documentation ("Custom Payload Codec"). Namespace and workflow id are
authenticated data, so a payload that was copied into the history of another workflow is refused. What earlier versions
wrote, in the clear or bound to no workflow, is read only if `BERTH_TEMPORAL_EARLIER_PAYLOADS_ALLOWED` says so. Ids of
workflows stay readable; tenants appear as keyed digests only.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import structlog
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from temporalio.api.common.v1 import Payload
from temporalio.client import (
    Interceptor,
    OutboundInterceptor,
    SignalWorkflowInput,
    StartWorkflowInput,
    WorkflowHandle,
)
from temporalio.converter import (
    ActivitySerializationContext,
    DataConverter,
    DefaultFailureConverterWithEncodedAttributes,
    PayloadCodec,
    SerializationContext,
    WithSerializationContext,
    WorkflowSerializationContext,
)

from berth.process.key_files import KEY_BYTES, read_keys
from worker.metrics import PAYLOADS_UNREADABLE

log = structlog.get_logger()

ENCODING: Final = "encoding"
ENCRYPTED: Final = b"binary/encrypted"
KEY_ID: Final = "encryption-key-id"
BOUND: Final = "berth-bound-to"
"""Metadata of a payload that is bound to its workflow; earlier versions wrote none."""
_TO_WORKFLOW: Final = b"workflow"
_NONCE_BYTES: Final = 12
_ID_LENGTH: Final = 16
_PURPOSE: Final = b"berth: payloads of Temporal"
_OF_TENANTS: Final = b"berth: digests of tenants in Temporal"


class PayloadUnreadable(Exception):
    """A payload is encrypted under an unknown key, was altered, or is of another workflow. It never contains content."""


class PayloadUnbound(Exception):
    """A payload would be stored outside of a workflow, where it could be bound to none."""


class OfWorkflow(NamedTuple):
    """The workflow that a payload belongs to: its own history, or what is sent to it."""

    namespace: str
    workflow_id: str

    @property
    def authenticated(self) -> bytes:
        """What AES-GCM authenticates beside a payload. No two workflows have the same."""
        namespace = self.namespace.encode()
        return b"%s\0%d:%s%s" % (_PURPOSE, len(namespace), namespace, self.workflow_id.encode())


class PayloadKeys:
    """Encrypts under the first key and decrypts under any of them.

    `earlier_allowed`: whether payloads that earlier versions wrote are read.
    """

    def __init__(self, keys: Sequence[bytes], *, earlier_allowed: bool = False) -> None:
        self._ciphers = {_key_id(key): AESGCM(key) for key in keys}
        self._newest = _key_id(keys[0])
        self._earlier_allowed = earlier_allowed
        self._digest_key = HKDF(SHA256(), KEY_BYTES, salt=None, info=_OF_TENANTS).derive(keys[0])

    def encrypt(self, payload: Payload, workflow: OfWorkflow) -> Payload:
        """The payload with its metadata, encrypted and bound to the workflow."""
        nonce = os.urandom(_NONCE_BYTES)
        sealed = self._ciphers[self._newest].encrypt(nonce, payload.SerializeToString(), workflow.authenticated)
        metadata = {ENCODING: ENCRYPTED, KEY_ID: self._newest.encode(), BOUND: _TO_WORKFLOW}
        return Payload(metadata=metadata, data=nonce + sealed)

    def decrypt(self, payload: Payload, workflow: OfWorkflow | None) -> Payload:
        """The payload as it was. Raises `PayloadUnreadable`; `workflow` None: a bound payload is unreadable."""
        key_id = payload.metadata.get(KEY_ID, b"").decode(errors="replace")
        bound = payload.metadata.get(BOUND) == _TO_WORKFLOW
        if not bound and not self._earlier_allowed:
            raise _unreadable(
                "earlier_version", key_id,
                "is bound to no workflow, as earlier versions wrote it (BERTH_TEMPORAL_EARLIER_PAYLOADS_ALLOWED)",
            )  # fmt: skip
        if payload.metadata.get(ENCODING) != ENCRYPTED:
            return payload
        cipher = self._ciphers.get(key_id)
        if cipher is None:
            raise _unreadable(
                "unknown_key", key_id, "is encrypted under a key that BERTH_TEMPORAL_PAYLOAD_KEY_FILE lacks"
            )
        authenticated = _PURPOSE if not bound or workflow is None else workflow.authenticated
        try:
            opened = cipher.decrypt(payload.data[:_NONCE_BYTES], payload.data[_NONCE_BYTES:], authenticated)
        except (InvalidTag, ValueError) as error:
            what = "was altered after its encryption, or belongs to another workflow"
            raise _unreadable("altered", key_id, what) from error
        return Payload.FromString(opened)

    def digest(self, tenant_id: str) -> str:
        """A tenant's id as Temporal may store it in the clear: HMAC-SHA256 under a key derived from the first."""
        return hmac.new(self._digest_key, tenant_id.encode(), hashlib.sha256).hexdigest()[:32]


def _unreadable(reason: str, key_id: str, what: str) -> PayloadUnreadable:
    PAYLOADS_UNREADABLE.labels(reason).inc()
    log.error("payload_unreadable", reason=reason, key_id=key_id)
    return PayloadUnreadable(f"a payload {what}; its key id is {key_id!r}")


class EncryptingCodec(PayloadCodec, WithSerializationContext):
    """Applies `PayloadKeys` to every payload that leaves or enters this process."""

    def __init__(self, keys: PayloadKeys, workflow: OfWorkflow | None = None) -> None:
        self._keys = keys
        self._workflow = workflow

    def with_context(self, context: SerializationContext) -> Self:
        """The codec of one workflow: both its own payloads and those of its activities have its id."""
        if isinstance(context, WorkflowSerializationContext | ActivitySerializationContext) and (
            context.workflow_id is not None  # an empty one is for Temporal to refuse
        ):
            return type(self)(self._keys, OfWorkflow(context.namespace, context.workflow_id))
        return type(self)(self._keys)

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Encrypt each. Raises `PayloadUnbound` outside of a workflow, except for what is encrypted already."""
        return [self._encode(payload) for payload in payloads]

    def _encode(self, payload: Payload) -> Payload:
        if self._workflow is not None:
            return self._keys.encrypt(payload, self._workflow)
        if payload.metadata.get(BOUND) != _TO_WORKFLOW:
            raise PayloadUnbound("a payload without a workflow would be stored")
        return payload

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Decrypt each. `PayloadUnreadable` fails the workflow's task, which Temporal repeats with growing pauses."""
        return [self._keys.decrypt(payload, self._workflow) for payload in payloads]


class HeaderEncryption(Interceptor):
    """Encrypts the headers that a client sends: Temporal's library passes them to the codec without their workflow.

    It is the last interceptor of a client, so that it encrypts what the others add.
    """

    def __init__(self, keys: PayloadKeys, namespace: str) -> None:
        self._keys = keys
        self._namespace = namespace

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:  # noqa: A002 - the library's name
        """The interceptor of one client."""
        return _EncryptsHeaders(next, self._keys, self._namespace)


class _EncryptsHeaders(OutboundInterceptor):
    def __init__(self, following: OutboundInterceptor, keys: PayloadKeys, namespace: str) -> None:
        super().__init__(following)
        self._keys = keys
        self._namespace = namespace

    async def start_workflow(self, input: StartWorkflowInput) -> WorkflowHandle[Any, Any]:  # noqa: A002
        return await super().start_workflow(replace(input, headers=self._encrypted(input.headers, input.id)))

    async def signal_workflow(self, input: SignalWorkflowInput) -> None:  # noqa: A002
        await super().signal_workflow(replace(input, headers=self._encrypted(input.headers, input.id)))

    def _encrypted(self, headers: Mapping[str, Payload], workflow_id: str) -> dict[str, Payload]:
        workflow = OfWorkflow(self._namespace, workflow_id)
        return {name: self._keys.encrypt(payload, workflow) for name, payload in headers.items()}


def load_payload_keys(path: Path, *, earlier_allowed: bool = False) -> PayloadKeys:
    """Read the keys. Raises ValueError if a line is not base64 of 32 bytes or there is none, OSError."""
    return PayloadKeys(read_keys(path, "payload key"), earlier_allowed=earlier_allowed)


def encrypting_converter(keys: PayloadKeys) -> DataConverter:
    """Temporal's own converter, with everything encrypted: messages and stack traces of failures become payloads."""
    return replace(
        DataConverter.default,
        payload_codec=EncryptingCodec(keys),
        failure_converter_class=DefaultFailureConverterWithEncodedAttributes,
    )


def _key_id(key: bytes) -> str:
    return hashlib.sha256(_PURPOSE + key).hexdigest()[:_ID_LENGTH]
