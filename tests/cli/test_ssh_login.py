"""`berth alloc ssh` passes a node's user and host to OpenSSH; neither may be read as an option."""

from __future__ import annotations

import getopt
from pathlib import Path

import pytest

from berth.cli.commands.ssh_login import ssh_command
from berth.client import Connection

HOSTILE = "-oProxyCommand=touch pwned"


@pytest.mark.parametrize("identity", [None, Path("id")])
@pytest.mark.parametrize("remote", [[], ["nvidia-smi", "-L"]])
@pytest.mark.parametrize(("user", "host"), [("tenant", "127.0.0.1"), (HOSTILE, "h"), ("tenant", HOSTILE)])
def test_user_and_host_stay_user_and_host(user: str, host: str, remote: list[str], identity: Path | None) -> None:
    connection = Connection(host=host, port=2222, user=user, host_key="ssh-ed25519 AAAA")
    command = ssh_command("ssh", connection, identity, Path("known"), remote)
    options, rest = getopt.getopt(command[1:], "p:i:o:l:")  # as ssh(1) reads them
    assert rest == [host, *remote]
    assert [value for name, value in options if name == "-l"] == [user]
    assert not [value for name, value in options if name == "-o" and value.startswith("ProxyCommand")]
