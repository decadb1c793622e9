"""Settings of consoles in an API process: where agents connect to it, and the bounds of sessions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

PORT_MAX = 65_535


@dataclass(frozen=True, slots=True)
class ConsoleLimits:
    """The bounds of sessions; each is a setting with the prefix `console_`."""

    sessions_max: int
    tenant_sessions_max: int
    dial_seconds: float
    idle_seconds: float
    session_seconds: float
    stall_seconds: float
    recheck_seconds: float
    output_bytes_per_second: int
    input_bytes_per_second: int


class ConsoleSettings(BaseSettings):
    """Where agents connect for consoles, and the bounds of sessions."""

    model_config = SettingsConfigDict(env_prefix="BERTH_", extra="ignore")

    console_host: str = Field("127.0.0.1", description="address of the public process's listener for consoles")
    console_port: int | None = Field(
        None,
        ge=1,
        le=65535,
        description="its port, where agents connect by mTLS; default: this process serves no consoles",
    )
    console_address: str | None = Field(
        None,
        pattern=r"^(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]{1,253}):[0-9]{1,5}$",
        description="host:port at which agents reach that listener of this very process; its certificate names the host",
    )
    console_tls_certificate_file: Path | None = Field(
        None, description="PEM server certificate of that listener, of a node CA; read again when it changes"
    )
    console_tls_key_file: Path | None = Field(None, description="PEM key of that certificate")
    console_sessions_max: int = Field(200, ge=1, le=10_000, description="console sessions of a process; beyond it 429")
    console_tenant_sessions_max: int = Field(
        10, ge=1, le=1_000, description="console sessions of a tenant at once; beyond it 429"
    )
    console_dial_seconds: float = Field(
        15.0, gt=0, le=120, description="how long a session waits for the worker, and then for the node's agent"
    )
    console_idle_seconds: float = Field(
        900.0, gt=0, description="silence in both directions after which a session ends"
    )
    console_session_seconds: float = Field(14_400.0, gt=0, le=86_400, description="longest session")
    console_stall_seconds: float = Field(30.0, gt=0, description="how long a client may read nothing of a console")
    console_recheck_seconds: float = Field(
        1.0,
        gt=0,
        le=10,
        description="how often the right to a session, and the state of its allocation, is checked again",
    )
    console_output_bytes_per_second: int = Field(
        1_048_576,
        ge=1_024,
        description="output of a guest that a session passes on in a second; the agent drops the rest",
    )
    console_input_bytes_per_second: int = Field(
        65_536, ge=64, description="input that a session passes on in a second; what comes faster waits at the client"
    )

    @field_validator("console_address")
    @classmethod
    def _names_a_port(cls, address: str | None) -> str | None:
        """The worker would otherwise fail to sign the task of each session."""
        if address is not None and not 1 <= int(address.rpartition(":")[2]) <= PORT_MAX:
            raise ValueError(f"the port is from 1 to {PORT_MAX}")
        return address

    def console_limits(self) -> ConsoleLimits:
        """The bounds that sessions obey."""
        return ConsoleLimits(
            sessions_max=self.console_sessions_max,
            tenant_sessions_max=self.console_tenant_sessions_max,
            dial_seconds=self.console_dial_seconds,
            idle_seconds=self.console_idle_seconds,
            session_seconds=self.console_session_seconds,
            stall_seconds=self.console_stall_seconds,
            recheck_seconds=self.console_recheck_seconds,
            output_bytes_per_second=self.console_output_bytes_per_second,
            input_bytes_per_second=self.console_input_bytes_per_second,
        )
