"""Client and command send a key over plain HTTP to nothing but a loopback address, unless that is allowed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping

import httpx
import pytest
from typer.testing import CliRunner

from berth.cli.main import app
from berth.client import AsyncClient, Client, InsecureAddress

TEXT = (
    "http://berth.example.org is neither https:// nor a loopback address, so the key would cross the network unencrypted;"
    " use https://, or allow it (insecure_http, --insecure-http, BERTH_INSECURE_HTTP)"
)
KEY = "berth_test_key"


class Sent(Exception):
    """A request was about to be sent."""


@pytest.fixture(autouse=True)
def nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request ends before it reaches a network."""

    def send(self: object, request: httpx.Request) -> httpx.Response:
        assert request.headers["authorization"] == f"Bearer {KEY}"
        raise Sent(str(request.url))

    monkeypatch.setattr(httpx.HTTPTransport, "handle_request", send)


@pytest.mark.parametrize("address", ["http://berth.example.org", "http://berth.example.org/", "HTTP://10.0.0.1:8080"])
def test_a_key_needs_an_encrypted_address(address: str) -> None:
    for make in (Client, AsyncClient):
        for key in (KEY, lambda: KEY):
            with pytest.raises(InsecureAddress) as refused:
                make(address, key)
            assert refused.value.code == "insecure_address"
            assert refused.value.detail.endswith(TEXT.partition(" is ")[2])


@pytest.mark.parametrize(
    "address",
    [
        "https://berth.example.org",
        "http://127.0.0.1:8080",
        "http://127.8.0.1",
        "http://[::1]:8080",
        "http://localhost:8080",
    ],
)
def test_an_encrypted_or_loopback_address_needs_no_permission(address: str) -> None:
    with Client(address, KEY) as client, pytest.raises(Sent):
        client.list_regions()


def test_an_insecure_address_may_be_allowed() -> None:
    with Client("http://berth.example.org", KEY, insecure_http=True) as client, pytest.raises(Sent):
        client.list_regions()
    asyncio.run(AsyncClient("http://berth.example.org", KEY, insecure_http=True).close())
    Client("http://berth.example.org").close()


def run(*arguments: str, environment: Mapping[str, str] | None = None) -> tuple[int, str, BaseException | None]:
    """Exit code, output and exception of a command against the example's address."""
    named = {"BERTH_API_URL": "http://berth.example.org", "BERTH_API_KEY": KEY, **(environment or {})}
    result = CliRunner().invoke(app, list(arguments), env=named)
    return result.exit_code, result.output, result.exception


def test_the_command_refuses_and_says_how_to_allow_it() -> None:
    code, output, _ = run("region", "list", "--output", "json")
    assert code == 1
    error = json.loads(output)["error"]
    assert (error["code"], error["detail"]) == ("insecure_address", TEXT)
    assert isinstance(run("region", "list", "--insecure-http")[2], Sent)
    assert isinstance(run("region", "list", environment={"BERTH_INSECURE_HTTP": "true"})[2], Sent)
