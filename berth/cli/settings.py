"""What the commands and the local stack read from the environment."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, SecretStr
from pydantic_settings import SettingsConfigDict

from berth.process.server_addresses import DatabaseUrl, NatsUrl, StandbyUrl, TemporalAddress
from berth.process.temporal_connections import TemporalSettings


class Settings(TemporalSettings):
    """Addresses and credentials. The local stack uses a server that is named here instead of starting its own."""

    model_config = SettingsConfigDict(env_prefix="BERTH_", extra="ignore")

    state_dir: Path = Field(Path("var"), description="state directory of the local stack")
    api_url: str | None = Field(None, description="address of the API; default: the stack in the state directory")
    api_key: str | None = Field(None, description="API key; default: the admin key of the stack in the state directory")
    login_issuer: str | None = Field(None, description="OIDC issuer of `berth login`, its exact `iss`")
    login_client_id: str | None = Field(None, description="client of `berth login` at the issuer")
    login_scope: str = Field("openid offline_access", description="scopes that `berth login` asks for")
    login_audience: str | None = Field(
        None, description="audience that `berth login` asks for, where the issuer needs it; default: not sent"
    )
    insecure_http: bool = Field(
        False, description="whether the key may be sent over http:// to an address that is not a loopback one"
    )
    database_url: DatabaseUrl | None = Field(None, description="an outside PostgreSQL, postgresql://")
    read_database_url: StandbyUrl | None = Field(
        None, description="standbys that serve reads, postgresql://, for `berth doctor` and `berth verify --on-standby`"
    )
    nats_url: NatsUrl | None = Field(None, description="an outside NATS, nats://")
    nats_ca_file: Path | None = Field(None, description="certificates that verify NATS; default: the system's")
    temporal_address: TemporalAddress | None = Field(None, description="an outside Temporal, host:port")
    four_eyes: bool = Field(
        False, description="whether the API requires a second operator (its setting of this name), for `berth doctor`"
    )
    sandbox_allowed: bool = Field(
        False,
        description="whether the API allows nodes that isolate nothing (its setting of this name), for `berth doctor`",
    )
    backup_dir: Path | None = Field(
        None, description="directory of `berth backup`; `berth up` streams into it, `berth doctor` reports on it"
    )
    backup_database_url: DatabaseUrl | None = Field(
        None, description="PostgreSQL as the role berth_backup, postgresql://; default: the local stack's"
    )
    backup_slot: str = Field(
        "berth_backup", pattern=r"^[a-z0-9_]{1,63}$", description="replication slot of `berth backup stream`"
    )
    backup_keep_count: int = Field(7, ge=1, le=10_000, description="so many of the newest base backups are kept")
    backup_keep_days: int = Field(14, ge=0, le=36_500, description="older ones are kept for so many days")
    backup_scratch_dir: Path | None = Field(
        None, description="where `berth backup verify` restores to; default: scratch in the backup directory"
    )
    backup_programs_dir: Path | None = Field(
        None, description="directory of PostgreSQL's programs; default: those of the wheel, else on PATH"
    )
    backup_secrets_dir: Path | None = Field(
        None, description="directory of the key files that are escrowed; default: the local stack's"
    )
    metrics_host: str = Field(
        "127.0.0.1", description="address of the metrics and health listener of `berth backup stream`"
    )
    metrics_port: int | None = Field(None, ge=0, le=65_535, description="its port; default: no such listener")
    trust_domain: str = Field("berth.local", description="SPIFFE trust domain of node identities")
    operation_retention_seconds: float = Field(
        86_400.0, gt=0, description="how long an operation's answer is kept (W): what `berth verify` judges by"
    )
    retention_days: int = Field(
        400,
        ge=0,
        le=36_500,
        description="how long ended allocations are kept before `berth archive run` deletes them; 0: for ever",
    )
    delivery_retention_days: int | None = Field(
        None,
        ge=0,
        le=36_500,
        description="how long ended webhook deliveries are kept before `berth archive run` deletes them, and nothing else does; "
        "0: the webhook sender deletes them again; default: the archive leaves them alone",
    )
    audit_retention_days: int = Field(
        0,
        ge=0,
        le=36_500,
        description="how long rows of the audit are kept before `berth archive run` deletes them, longer than allocations; "
        "0: for ever",
    )
    archive_s3_endpoint: str | None = Field(
        None,
        description="address of the S3-compatible storage of an archive, https://; default: Amazon S3 in the region",
    )
    archive_s3_region: str = Field("us-east-1", pattern=r"^[a-z0-9-]{1,64}$", description="region of that storage")
    archive_s3_access_key_id: str | None = Field(None, description="access key of that storage")
    archive_s3_secret_access_key: SecretStr | None = Field(None, description="its secret")
    archive_s3_session_token: SecretStr | None = Field(None, description="its session token, of temporary credentials")
    archive_s3_credentials_file: Path | None = Field(
        None, description="file with the profile [default] in the format of the AWS tools, instead of the access key"
    )
    sweep_grace_seconds: float = Field(
        10.0, ge=0, description="how far past a deadline a sweeper steps in: what `berth verify` judges by"
    )
