"""Settings of the streamer that cannot work are refused before it starts, each with a sentence that contains no secret."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from pydantic import ValidationError

from worker.audit_stream.nats_target import NatsTarget
from worker.audit_stream.settings import AuditStreamSettings
from worker.audit_stream.syslog_target import SyslogTarget

DATABASE = "postgresql://x@127.0.0.1:1/x"


def test_targets_are_those_that_are_set() -> None:
    both = AuditStreamSettings(
        database_url=DATABASE, audit_nats_url="nats://127.0.0.1:4222", audit_syslog_url="tls://siem.example"
    ).targets()
    assert [type(target) for target in both] == [NatsTarget, SyslogTarget]
    assert [target.name for target in both] == ["nats", "syslog"]
    assert [
        target.name
        for target in AuditStreamSettings(database_url=DATABASE, audit_syslog_url="unix:///dev/log").targets()
    ] == ["syslog"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "without a target there is nothing to do"),
        ({"audit_syslog_url": "udp://127.0.0.1:514"}, "must look like tls://host:6514"),
        ({"audit_syslog_url": "tls://"}, "must look like tls://host:6514"),
        ({"audit_syslog_url": "tls://u:hidden@siem.example"}, "without a user"),
        ({"audit_syslog_url": "tls://siem.example:70000"}, "its port must be"),
        ({"audit_syslog_url": "tls://siem.example/path"}, "must look like"),
        ({"audit_syslog_url": "unix://dev/log"}, "must look like"),
        ({"audit_syslog_url": "tcp://siem.example:601"}, "unencrypted to another machine"),
        ({"audit_syslog_url": "tls://siem.example", "audit_syslog_key_file": "key"}, "needs BERTH_AUDIT_SYSLOG_CERT"),
        ({"audit_nats_url": "http://127.0.0.1"}, "must look like nats://"),
        ({"audit_nats_url": "nats://127.0.0.1", "audit_nats_stream": "a.b"}, "pattern"),
    ],
)
def test_what_cannot_work_is_refused(settings: dict[str, str], said: str) -> None:
    with pytest.raises(ValidationError) as refused:
        AuditStreamSettings(database_url=DATABASE, **settings)  # type: ignore[arg-type]
    messages = " ".join(error["msg"] for error in refused.value.errors())
    assert said in messages
    assert "hidden" not in messages


def test_plain_tcp_to_another_machine_by_setting() -> None:
    allowed = AuditStreamSettings(
        database_url=DATABASE, audit_syslog_url="tcp://siem.example", audit_syslog_plain_allowed=True
    )
    assert len(allowed.targets()) == 1


@pytest.mark.quick("variables1-BERTH_AUDIT_SYSLOG_URL: must look like tls://host:6514")
@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({}, "worker: these settings are missing or wrong: set BERTH_AUDIT_NATS_URL or BERTH_AUDIT_SYSLOG_URL"),
        (
            {"BERTH_AUDIT_SYSLOG_URL": "tls://u:hidden@siem.example"},
            "BERTH_AUDIT_SYSLOG_URL: must look like tls://host:6514",
        ),
        (
            {"BERTH_AUDIT_SYSLOG_URL": "unix:///dev/log", "BERTH_TASK_SIGNING_KEY_FILE": "key"},
            "is set; only the worker may have the key that signs tasks",
        ),
    ],
)
def test_the_process_ends_with_one_sentence(variables: dict[str, str], said: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "worker", "--audit-stream"],
        env={"PATH": os.environ["PATH"], "BERTH_DATABASE_URL": DATABASE, **variables},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode == 1
    assert len(ended.stderr.strip().splitlines()) == 1
    assert said in ended.stderr
    assert "hidden" not in ended.stderr


@pytest.mark.full
@pytest.mark.quick("worker.audit_stream.app")
@pytest.mark.parametrize("module", ["worker.audit_stream.app", "worker.audit_stream.settings"])
def test_its_code_loads_neither_temporal_nor_what_other_processes_have(module: str) -> None:
    loaded = subprocess.check_output([sys.executable, "-c", f"import sys, {module}; print(*sys.modules)"], text=True)
    assert module in loaded.split()
    assert not {"temporalio", "fastapi", "worker.app", "worker.settings", "worker.metrics"} & set(loaded.split())
