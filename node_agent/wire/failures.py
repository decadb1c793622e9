"""Why a task of a node failed."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import Field, model_validator

from node_agent.wire.fields import STORABLE, Wire

DETAIL_MAX: Final = 2_000
_CODE: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")


class FailureCode(StrEnum):
    """Why a task failed, as the node knows it. Each is a row of the source's "Failure -> state mapping" or ours."""

    LEASE_CONFLICT = "lease_conflict"
    IMAGE_DOWNLOAD_FAILED = "image_download_failed"
    IMAGE_CHECKSUM_MISMATCH = "image_checksum_mismatch"
    IMAGE_DOES_NOT_FIT = "image_does_not_fit"
    VFIO_HOST_NOT_READY = "vfio_host_not_ready"
    HUGE_PAGES_SHORT = "huge_pages_short"
    DISK_POOL_SHORT = "disk_pool_short"
    GUEST_SIZE_UNAVAILABLE = "guest_size_unavailable"
    GUEST_DEFINITION_FAILED = "guest_definition_failed"
    SSH_READINESS_TIMEOUT = "ssh_readiness_timeout"
    GUEST_MARKER_MISSING = "guest_marker_missing"
    INTERRUPTED = "interrupted"
    TASK_REFUSED = "task_refused"
    CLEANUP_FAILED = "cleanup_failed"
    DRIVER_ERROR = "driver_error"


_CODES: Final = frozenset(FailureCode)
_AFTER_0_2_0: Final = frozenset({FailureCode.DISK_POOL_SHORT})


class TaskFailure(Wire):
    """A failed task: stable code, a sentence for a person. A code of a newer agent is read as `driver_error`, and begins the
    sentence."""

    code: FailureCode
    detail: Annotated[str, Field(max_length=DETAIL_MAX, pattern=STORABLE)]

    @model_validator(mode="before")
    @classmethod
    def _known_code(cls, value: Any) -> Any:
        code, detail = (value.get("code"), value.get("detail")) if isinstance(value, dict) else (None, None)
        if not isinstance(code, str) or not isinstance(detail, str) or code in _CODES:
            return value
        if _CODE.fullmatch(code) is None:
            return value
        return {**value, "code": FailureCode.DRIVER_ERROR, "detail": f"{code}: {detail}"[:DETAIL_MAX]}

    def in_codes_of_0_2_0(self) -> TaskFailure:
        """The same failure for a control plane that does not know each code of this version."""
        if self.code not in _AFTER_0_2_0:
            return self
        return TaskFailure(code=FailureCode.DRIVER_ERROR, detail=f"{self.code}: {self.detail}"[:DETAIL_MAX])
