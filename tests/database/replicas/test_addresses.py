"""`BERTH_READ_DATABASE_URL`: an address that cannot lead to a standby is refused before the process starts."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from orchestrator.database.replicas.settings import ReplicaSettings

SEVERAL = "postgresql://u:secret@/berth?host=127.0.0.1,127.0.0.1&port=5432,5433"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u@127.0.0.1:5432/berth?target_session_attrs=standby",
        "postgresql://u@127.0.0.1/berth?target_session_attrs=standby",
        f"{SEVERAL}&target_session_attrs=standby",
        f"{SEVERAL}&target_session_attrs=standby&load_balance_hosts=random",
    ],
)
def test_an_address_of_standbys_is_taken(url: str) -> None:
    assert ReplicaSettings(read_database_url=url).read_database_url == url


@pytest.mark.parametrize(
    "url",
    [
        "",
        "mysql://u@127.0.0.1/berth",
        "postgresql://u:secret@127.0.0.1:5432/berth",
        "postgresql://u:secret@127.0.0.1/berth?target_session_attrs=any",
        "postgresql://u:secret@127.0.0.1/berth?target_session_attrs=read-write",
        "postgresql://u:secret@127.0.0.1/berth?target_session_attrs=primary",
        SEVERAL,
        f"{SEVERAL}&target_session_attrs=any",
        f"{SEVERAL}&target_session_attrs=read-write",
        f"{SEVERAL}&target_session_attrs=prefer-standby",
    ],
)
def test_another_address_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ValidationError) as refused:
        ReplicaSettings(read_database_url=url)
    message = str(refused.value.errors(include_input=False))
    assert "must" in message
    assert "secret" not in message


def test_beyond_this_machine_the_servers_certificate_is_verified() -> None:
    found = ReplicaSettings(read_database_url="postgresql://u@pg-b/berth?target_session_attrs=standby")
    assert found.read_database_url == "postgresql://u@pg-b/berth?target_session_attrs=standby&sslmode=verify-full"


def test_without_an_address_nothing_is_read_from_standbys() -> None:
    assert ReplicaSettings().read_database_url is None
