"""What a task states of its guest, what a node reports of it, and by which policy the agent starts it again."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, Self

from pydantic import BeforeValidator, Field, model_validator

from node_agent.wire.fields import INTEGER_MAX, Wire, whole

GUEST_SIZE_FEATURE: Final = "guest_size"
"""The agent makes guests of the size that their SKU states; one of the version before refuses a task that names it."""
VCPUS_MAX: Final = 256 * 64
MEMORY_STEP_BYTES: Final = 2**20
"""The memory of a guest is a multiple of this."""
_Vcpus = Annotated[int, Field(strict=True, ge=1, le=VCPUS_MAX), BeforeValidator(whole)]
_Memory = Annotated[
    int, Field(strict=True, ge=MEMORY_STEP_BYTES, le=INTEGER_MAX, multiple_of=MEMORY_STEP_BYTES), BeforeValidator(whole)
]


class GuestSize(Wire):
    """What the SKU of a guest states, for all of its slots together; None: as much as they have of the node."""

    vcpus: _Vcpus | None = None
    memory_bytes: _Memory | None = None

    @model_validator(mode="after")
    def _states_something(self) -> Self:
        if self.vcpus is None and self.memory_bytes is None:
            raise ValueError("a size states vcpus, memory_bytes or both")
        return self


class RestartPolicy(StrEnum):
    """Whether the agent starts a guest again that ended although it should run."""

    ALWAYS = "always"
    NEVER = "never"


class GuestReport(StrEnum):
    """What the agent finds of a guest that is up by its record."""

    RUNNING = "running"
    UNREACHABLE = "unreachable"
    """It runs, and its SSH server has not answered for a while."""
    STOPPED = "stopped"
    """Stopped by the verb `stop`."""
    DOWN = "down"
    """It should run and does not; the agent is about to start it again."""
    ENDED = "ended"
    """It should run and does not; the agent does not start it again, by policy or after its last attempt."""
