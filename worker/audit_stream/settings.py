"""Every setting of the audit streamer, read once at start from `BERTH_*` environment variables."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, SettingsConfigDict

from berth.process.server_addresses import DatabaseUrl, NatsUrl, is_here
from worker.audit_stream.nats_target import NatsTarget
from worker.audit_stream.streamer import Pace
from worker.audit_stream.syslog_target import DEFAULT_PORTS, SyslogTarget
from worker.audit_stream.targets import Target


class AuditStreamSettings(BaseSettings):
    """Addresses, files and bounds. Durations are seconds."""

    model_config = SettingsConfigDict(env_prefix="BERTH_", extra="ignore")

    database_url: DatabaseUrl = Field(
        description="postgresql:// address of the database; beyond this machine sslmode is verify-full if none is given"
    )
    lock_timeout_seconds: float = Field(5.0, gt=0, description="how long a command waits for a row")
    transaction_timeout_seconds: float = Field(30.0, gt=0, le=40, description="longest transaction")
    metrics_host: str = Field("127.0.0.1", description="address of the metrics and health listener")
    metrics_port: int | None = Field(
        None, ge=0, le=65_535, description="port of the metrics and health listener; default: no listener"
    )
    startup_seconds_max: float = Field(60.0, gt=0, description="how long to wait for the database at start")

    audit_nats_url: NatsUrl | None = Field(
        None, description="nats:// or tls:// address of the NATS that the audit is streamed to; default: not to NATS"
    )
    nats_ca_file: Path | None = Field(
        None, description="authorities that verify the certificate of NATS; default: the system's"
    )
    audit_nats_stream: str = Field(
        "BERTH_AUDIT",
        pattern=r"^[A-Za-z0-9_-]{1,64}$",
        description="JetStream stream of the audit; made if it is missing",
    )
    audit_nats_subject: str = Field(
        "berth.audit", pattern=r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$", description="its subject"
    )
    audit_nats_age_seconds_max: float = Field(
        90 * 86_400.0, ge=0, description="how long a stream that is made keeps messages; 0: for ever"
    )
    audit_nats_replicas: int = Field(1, ge=1, le=5, description="replicas of a stream that is made")

    audit_syslog_url: str | None = Field(
        None,
        description="syslog receiver that the audit is streamed to: tls://host:6514, tcp://host:601 or unix:///path; "
        "default: not to syslog",
    )
    audit_syslog_ca_file: Path | None = Field(
        None, description="authorities that verify the certificate of the syslog receiver; default: the system's"
    )
    audit_syslog_certificate_file: Path | None = Field(
        None, description="client certificate for the syslog receiver; default: none"
    )
    audit_syslog_key_file: Path | None = Field(None, description="its key; default: in the same file")
    audit_syslog_plain_allowed: bool = Field(
        False, description="whether tcp:// may name another machine; the audit is then readable on the way"
    )
    audit_syslog_hostname: str = Field(
        "", max_length=255, description="HOSTNAME of the messages; default: that of the machine"
    )
    audit_syslog_message_bytes_max: int = Field(
        8_000, ge=2_048, le=1_048_576, description="longest message; a larger row is sent without its `detail`"
    )
    audit_syslog_settle_seconds: float = Field(
        1.0,
        ge=0,
        le=60,
        description="how long the connection must stay open after a batch before it counts as received",
    )

    audit_stream_batch_max: int = Field(500, ge=1, le=5_000, description="most audit rows sent at once")
    audit_stream_tick_seconds: float = Field(0.5, gt=0, le=60, description="how often new audit rows are searched")
    audit_stream_timeout_seconds: float = Field(
        5.0, gt=0, le=120, description="how long a target may take to connect, and to acknowledge a batch"
    )
    audit_stream_backoff_seconds_max: float = Field(
        30.0, gt=0, description="longest pause between attempts to connect to a target"
    )

    @field_validator("audit_syslog_url")
    @classmethod
    def _usable_syslog_url(cls, url: str | None) -> str | None:
        if not url:
            return None
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise _refused("its port must be a number from 1 to 65535") from None
        is_path = parts.scheme == "unix" and not parts.netloc and parts.path.startswith("/")
        is_place = parts.scheme in DEFAULT_PORTS and parts.hostname and parts.path in ("", "/") and port != 0
        if not (is_path or is_place) or parts.username is not None or parts.query or parts.fragment:
            raise _refused("must look like tls://host:6514, tcp://host:601 or unix:///path, without a user")
        return url

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.audit_nats_url is None and self.audit_syslog_url is None:
            raise _refused(
                "set BERTH_AUDIT_NATS_URL or BERTH_AUDIT_SYSLOG_URL; without a target there is nothing to do"
            )
        parts = urlsplit(self.audit_syslog_url or "")
        if parts.scheme == "tcp" and not is_here(parts.hostname) and not self.audit_syslog_plain_allowed:
            raise _refused(
                "BERTH_AUDIT_SYSLOG_URL sends the audit unencrypted to another machine; use tls://, or set"
                " BERTH_AUDIT_SYSLOG_PLAIN_ALLOWED=true"
            )
        if self.audit_syslog_key_file is not None and self.audit_syslog_certificate_file is None:
            raise _refused("BERTH_AUDIT_SYSLOG_KEY_FILE needs BERTH_AUDIT_SYSLOG_CERTIFICATE_FILE")
        return self

    def targets(self) -> list[Target]:
        """The targets that are set."""
        found: list[Target] = []
        if self.audit_nats_url is not None:
            found.append(
                NatsTarget(
                    self.audit_nats_url, self.nats_ca_file, self.audit_nats_stream, self.audit_nats_subject,
                    self.audit_nats_age_seconds_max, self.audit_nats_replicas, self.audit_stream_timeout_seconds,
                )
            )  # fmt: skip
        if self.audit_syslog_url is not None:
            found.append(
                SyslogTarget(
                    self.audit_syslog_url, self.audit_syslog_hostname or socket.gethostname(),
                    self.audit_syslog_message_bytes_max,
                    self.audit_stream_timeout_seconds, self.audit_syslog_settle_seconds, self.audit_syslog_ca_file,
                    self.audit_syslog_certificate_file, self.audit_syslog_key_file,
                )
            )  # fmt: skip
        return found

    def pace(self) -> Pace:
        """The bounds of a streamer."""
        return Pace(
            self.audit_stream_batch_max,
            self.audit_stream_tick_seconds,
            self.audit_stream_timeout_seconds,
            self.audit_stream_backoff_seconds_max,
        )


def _refused(sentence: str) -> PydanticCustomError:
    return PydanticCustomError("unusable_setting", "{sentence}", {"sentence": sentence})
