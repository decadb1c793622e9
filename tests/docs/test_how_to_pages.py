"""The marked commands of tutorials and how-to pages work when pasted, and print what the pages say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from berth.client import Client
from berth.local.options import StackOptions
from berth.local.stack import Stack
from tests.deploy.deployment import ROOT
from tests.docs.page_scripts import blocks, missing_lines, run

DOCS = ROOT / "docs"
SCRIPTS = [
    ["tutorials/first-allocation.md"],
    ["how-to/reserve-a-cluster.md"],
    ["how-to/resume-after-a-lost-response.md"],
    ["how-to/receive-webhooks.md"],
    ["how-to/add-a-node.md", "how-to/drain-and-retire-a-node.md"],
    ["how-to/free-stuck-units.md"],
    ["how-to/consume-the-ledger.md"],
    ["how-to/read-metrics-and-alerts.md"],
    ["how-to/rotate-secrets.md"],
    ["how-to/upgrade.md"],
    ["how-to/backup/back-up-and-verify.md"],
]


def test_every_page_with_marked_commands_is_executed() -> None:
    marked = {
        str(page.relative_to(DOCS))
        for kind in ("tutorials", "how-to")
        for page in (DOCS / kind).rglob("*.md")
        if blocks(page)
    }
    assert marked == {page for script in SCRIPTS for page in script}


def test_every_mark_is_understood() -> None:
    """A misspelt mark would leave its block unexecuted."""
    for page in DOCS.rglob("*.md"):
        marks = re.findall(r"^<!-- (?:run|output|file)\b", page.read_text(), re.MULTILINE)
        assert len(marks) == len(blocks(page)), page.name


@pytest.fixture(scope="module")
def environment(server_directory: Path) -> Iterator[dict[str, str]]:
    """A running local stack with three nodes, a tenant's key with an SSH key, and the admin key."""
    state = server_directory / "pages" / "var"
    with Stack(StackOptions(state, agents=3, wished_port=None)):
        url = json.loads((state / "endpoints.json").read_text())["api_url"]
        admin_key = (state / "secrets" / "admin-key").read_text().strip()
        with Client(url, admin_key) as admin:
            tenant = admin.create_tenant(name="pages", gpus_limit=16)
            tenant_key = admin.create_api_key(name="pages", role="tenant", tenant_id=tenant.id).key
        with Client(url, tenant_key) as berth:
            berth.add_ssh_key(
                name="pages",
                public_key="ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ0PEKsI4F/08JZUPzRyVdnvyJUkcRw98L6QO8ZpPmPk",
            )
        yield {
            "BERTH_STATE_DIR": str(state), "BERTH_API_URL": url, "ADMIN_KEY": admin_key, "TENANT_KEY": tenant_key,
        }  # fmt: skip


@pytest.mark.full
@pytest.mark.timeout(400)
@pytest.mark.parametrize("names", SCRIPTS, ids=lambda names: names[0])
def test_the_commands_of_a_page_print_what_it_says(
    names: list[str], environment: dict[str, str], tmp_path: Path
) -> None:
    pages = [DOCS / name for name in names]
    output = run(pages, environment, tmp_path / "work")
    assert missing_lines(pages, output) == [], output
