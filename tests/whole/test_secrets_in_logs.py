"""No process of the stack writes a secret of the run to its log: API, node listener, relay, worker and agents."""

from __future__ import annotations

import re
import secrets
from pathlib import Path

import psutil
import psycopg

from tests.support.waiting import wait_for
from tests.support.whole_stack import Tenant, Whole

PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----(.*?)-----END", re.DOTALL)
CHARACTERS_MIN = 16
"""Shorter texts are no secrets, and may occur by chance."""


def kept_secrets(state: Path) -> dict[str, str]:
    """Every password, token and private key in the stack's files, by what it is."""
    found: dict[str, str] = {}
    for file in (path for path in state.rglob("*") if path.is_file() and path.suffix not in (".img", ".log")):
        if file.parent.name != "secrets" and file.suffix not in (".pem", ".key", ".token"):
            continue
        text = file.read_text(errors="replace").strip()
        for body in PRIVATE_KEY.findall(text):
            found |= {f"{file.name}, line {n}": line for n, line in enumerate(body.split())}
        if "-----" not in text and "\n" not in text:
            found[file.name] = text
    return {name: text for name, text in found.items() if len(text) >= CHARACTERS_MIN}


def deliveries_failed(whole: Whole, url: str) -> bool:
    """Whether the worker has tried to send a message to this webhook."""
    with psycopg.connect(whole.stack.endpoints.database_url) as connection:
        row = connection.execute(
            "select from webhook_deliveries d join webhooks w on w.id = d.webhook_id where w.url = %s and d.attempts > 0",
            (url,),
        ).fetchone()
    return row is not None


def test_no_process_logs_a_secret_of_the_run(whole: Whole, tenant: Tenant) -> None:
    token, user_data = secrets.token_hex(16), secrets.token_hex(16)
    url = f"https://hooks.invalid/x?token={token}"
    hook = tenant.client.create_webhook(url=url)
    made = tenant.client.create_allocation(
        sku="h100.slice", gpus=1, region="eu-1", ssh_key_ids=[tenant.ssh_key_id], user_data=user_data
    )
    tenant.wait(made, "active")
    tenant.client.release_allocation(made.allocation_id)
    tenant.wait(made, "released")
    wait_for(lambda: deliveries_failed(whole, url), "a message is sent to the webhook")

    state = whole.stack.state
    of_run = kept_secrets(state.path) | {
        "the token in a webhook's URL": token, "user data": user_data, "a tenant's key": tenant.api_key,
        "a webhook's secret": str(hook.secret),
    }  # fmt: skip
    assert {"a webhook's secret", "admin-key", "nats-relay-password"} <= {
        name for name, text in of_run.items() if text != "None"
    }, of_run.keys()
    assert any("line" in name for name in of_run), "private keys are among them"
    logs = {file.stem: file.read_text(errors="replace") for file in state.log.glob("*.log")}
    assert {child.name.replace(" ", "-") for child in whole.stack._children} <= logs.keys()
    commands = "\n".join(" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"]))
    assert "outbox_relay" in commands
    for name, secret in of_run.items():
        assert secret not in commands, f"a command line holds {name}"
    for process, text in logs.items():
        assert text, f"{process} logs"
        for name, secret in of_run.items():
            assert secret not in text, f"{process} logged {name}"
