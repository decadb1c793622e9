"""Where nothing is sent: every special address, in every form, behind every name."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.webhooks.addresses import is_private_host, is_public_address, literal_address, read_webhook_url
from tests.api.calling import problem
from tests.webhooks.receivers import Receiver
from tests.webhooks.stage import WebhookStage

SPECIAL = [
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24",
    "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
    "::/128", "::1/128", "::ffff:0:0/96", "::/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/32", "2001:2::/48",
    "2001:db8::/32", "2001:10::/28", "2002::/16", "3fff::/20", "5f00::/16", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8",
]  # fmt: skip
PUBLIC = ["1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0",
          "172.15.255.255", "172.32.0.0", "192.167.255.255", "192.169.0.0", "223.255.255.255", "2606:4700::1111",
          "2001:4860:4860::8888", "2a00:1450::1", "2a00:1450::5efe:101:101"]  # fmt: skip


def within(network: str) -> st.SearchStrategy[str]:
    """Addresses of a network, its ends more often than chance would have it."""
    whole = ipaddress.ip_network(network)
    first, last = int(whole[0]), int(whole[-1])
    kind = ipaddress.IPv4Address if whole.version == 4 else ipaddress.IPv6Address
    return st.one_of(st.just(first), st.just(last), st.integers(first, last)).map(lambda number: str(kind(number)))


specials = st.sampled_from(SPECIAL).flatmap(within)
specials_v4 = st.sampled_from([network for network in SPECIAL if ":" not in network]).flatmap(within)


@given(specials)
def test_no_special_address_is_public(address: str) -> None:
    assert not is_public_address(address)
    assert is_private_host(address)


@given(st.ip_addresses())
def test_what_is_public_is_public_for_others_too(address: Any) -> None:
    if is_public_address(str(address)):
        assert address.is_global
        assert not address.is_multicast
        assert not address.is_private


@pytest.mark.parametrize("address", PUBLIC)
def test_the_public_internet_is_reached(address: str) -> None:
    assert is_public_address(address)
    assert not is_private_host(address)


@given(
    specials.filter(lambda address: ":" not in address),
    st.sampled_from(["{n}", "0x{n:x}", "0{n:o}", "short", "hex", "octal"]),
)
def test_no_form_of_an_address_hides_it(address: str, form: str) -> None:
    number = int(ipaddress.IPv4Address(address))
    parts = address.split(".")
    text = {
        "short": f"{parts[0]}.{number & 0xFFFFFF}",
        "hex": ".".join(f"0x{int(part):x}" for part in parts),
        "octal": ".".join(f"0{int(part):o}" for part in parts),
    }.get(form, form.format(n=number))
    assert literal_address(text) == address
    assert is_private_host(text)


@given(specials_v4)
def test_no_address_inside_another_hides(address: str) -> None:
    number = int(ipaddress.IPv4Address(address))
    high, low = number >> 16, number & 0xFFFF
    for text in (
        f"::ffff:{high:x}:{low:x}", f"::{high:x}:{low:x}", f"64:ff9b::{high:x}:{low:x}", f"2002:{high:x}:{low:x}::1",
        f"2001:0:{high:x}:{low:x}::", f"64:ff9b:1::{high:x}:{low:x}", f"::ffff:0:{high:x}:{low:x}",
        f"2a00:1450::5efe:{high:x}:{low:x}", f"2a00:1450:1:2:200:5efe:{high:x}:{low:x}",
    ):  # fmt: skip
        assert not is_public_address(text)


@pytest.mark.parametrize("text", ["fe80::1%eth0", "2606:4700::1%1", "", "localhost", "1.1.1.1 ", "1.1.1", "a.b"])
def test_what_is_no_address_is_not_public(text: str) -> None:
    assert not is_public_address(text)


@pytest.mark.parametrize(
    "url",
    ["https://127.0.0.1/", "https://2130706433/", "https://0x7f.1/", "https://0177.0.0.1/", "https://[::1]/", "https://127.1/",
     "https://[::ffff:10.0.0.1]/", "https://localhost/", "https://LOCALHOST./", "https://a.localhost:8443/x", "https://0/",
     "https://169.254.169.254/latest/meta-data", "https://metadata.google.internal/", "https://[fd00::1]:444/",
     "https://100.100.100.200/"],
)  # fmt: skip
def test_what_shows_in_the_url_is_refused_at_once(strict_stage: WebhookStage, url: str) -> None:
    tenant = strict_stage.tenant()
    refused = problem(tenant.call("POST", "/webhooks", {"url": url}), 422, "webhook_url_refused")
    assert refused["reason"] == "private_address"
    made = tenant.make("/webhooks", {"url": "https://hooks.example.com/"})
    problem(tenant.call("PATCH", f"/webhooks/{made['id']}", {"url": url}), 422, "webhook_url_refused")
    assert tenant.get(f"/webhooks/{made['id']}")["url"] == "https://hooks.example.com/"
    assert problem(tenant.call("POST", "/webhooks", {"url": "http://example.com/"}), 422, "webhook_url_refused")[
        "reason"
    ] == "http"  # fmt: skip


@pytest.mark.parametrize(
    "url",
    ["", "x", "ftp://example.com/", "https://", "https:///x", "https://u@example.com/", "https://u:p@example.com/",
     "//example.com/", "https://example.com/#x", "https://example.com/#", "https://example.com:0/", "https://example.com:99999/",
     "https://exa mple.com/", "https://example.com/\n", "https://example.com\\@127.0.0.1/", "https://ex%61mple.com/", "https://[::1/",
     "https://bücher.example/",
     "https://" + "a" * 300 + "/", "https://example.com/" + "a" * 2_000, "https://[fe80::1%25eth0]/"],
    ids=range(21),
)  # fmt: skip
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="must"):
        read_webhook_url(url)


@given(st.text(max_size=60).map(lambda text: f"https://{text}"))
def test_reading_a_url_never_fails_otherwise(url: str) -> None:
    try:
        read = read_webhook_url(url)
    except ValueError:
        return
    assert read.target.startswith("/")
    assert 1 <= read.port <= 65_535


def resolving(*answers: Sequence[str]) -> Any:
    """A resolver that answers so, one after another."""
    waiting = list(answers)

    async def resolve(host: str, port: int) -> Sequence[str]:
        return waiting.pop(0) if len(waiting) > 1 else waiting[0]

    return resolve


def outcome(stage: WebhookStage, receiver: Receiver, url: str, **how: Any) -> tuple[str | None, int | None]:
    """Of one attempt to send there; what earlier tests left is not due again beside it."""
    stage.database.execute("update webhook_deliveries set next_attempt_at = 'infinity' where state = 'pending'")
    tenant = stage.tenant()
    made = tenant.make("/webhooks", {"url": url, "types": ["node.online"]})
    stage.append(tenant)
    stage.dispatch(stage.dispatcher(**how))
    (told,) = stage.deliveries(tenant, made)
    return told["error"], told["response_status"]


def test_a_name_is_looked_at_each_time_and_all_of_it(stage: WebhookStage, receiver: Receiver) -> None:
    url = f"http://hooks.example.com:{receiver.port}/hook"
    assert outcome(stage, receiver, url, resolve=resolving(["127.0.0.1"])) == (None, 204)
    assert receiver.received[0].headers["host"] == f"hooks.example.com:{receiver.port}"
    for addresses in (["127.0.0.1"], ["1.1.1.1", "127.0.0.1"], ["::ffff:127.0.0.1"], ["1.1.1.1", "fd00::1"]):
        how = {"resolve": resolving(addresses), "private_allowed": False}
        assert outcome(stage, receiver, url, **how) == ("private_address", None)
    assert outcome(stage, receiver, url, resolve=resolving([])) == ("name_not_resolved", None)
    assert len(receiver.received) == 1


def test_a_name_is_asked_for_once_an_attempt(stage: WebhookStage, receiver: Receiver) -> None:
    """Later answers of the resolver (DNS rebinding) have no effect: the checked address is connected to."""
    url = f"http://rebinding.example.com:{receiver.port}/hook"
    asked: list[str] = []

    async def resolve(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["192.0.2.1"]

    assert outcome(stage, receiver, url, resolve=resolve) == (None, 204)
    assert asked == ["rebinding.example.com"]


def test_another_address_of_the_name_is_tried(stage: WebhookStage, receiver: Receiver) -> None:
    with socket.create_server(("127.0.0.2", 0)) as taken:
        closed = taken.getsockname()[1]
    assert closed
    url = f"http://two.example.com:{receiver.port}/hook"
    assert outcome(stage, receiver, url, resolve=resolving(["127.0.0.9", "127.0.0.1"])) == (None, 204)


def test_real_names_and_forms_of_the_machines_own_resolver(stage: WebhookStage, receiver: Receiver) -> None:
    for host in ("localhost", "2130706433", "0x7f000001", "0177.0.0.1", "127.1"):
        url = f"http://{host}:{receiver.port}/"
        assert outcome(stage, receiver, url, private_allowed=False) == ("private_address", None), host
    assert receiver.received == []
    for host in ("no-such-name.invalid", "a" * 64 + ".example.com"):
        url = f"http://{host}:{receiver.port}/"
        assert outcome(stage, receiver, url) == ("name_not_resolved", None), host


def test_a_worker_that_forbids_http_sends_none(stage: WebhookStage, receiver: Receiver) -> None:
    assert outcome(stage, receiver, receiver.url, http_allowed=False) == ("http", None)
    assert receiver.received == []
