"""Linters accept the served OpenAPI and AsyncAPI documents without a remark, and clients generated from them compile.

The tools are installed for these tests from `package-lock.json` and `openapi-python-client.txt`; node 20 or newer is needed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchestrator.app import build_services, node_application
from orchestrator.settings import Settings
from tests.support.public_api import PublicApi, admin, api

__all__ = ["admin", "api"]
pytestmark = [pytest.mark.full, pytest.mark.timeout(1_800)]

HERE = Path(__file__).parent
CONFIGURATION = (
    "package.json", "package-lock.json", "tsconfig.json", "uses.ts", "redocly.yaml", "spectral-openapi.yaml",
    "spectral-asyncapi.yaml",
)  # fmt: skip
NODE_MISSING = "`make test-full` needs node (20 or newer) with npm: the contract tools are npm packages; install it"
LABELS_KEPT = """
from berth_client.models import CreateAllocation
sent = {"sku": "s", "gpus": 1, "region": "r", "ssh_key_ids": ["0198c1f2-5d10-7b6f-b1a2-3c4d5e6f7081"], "labels": {"team": "a"}}
assert CreateAllocation.from_dict(sent).to_dict()["labels"] == {"team": "a"}, CreateAllocation.from_dict(sent).to_dict()
"""


@dataclass(frozen=True)
class Workshop:
    """A folder with the installed tools and the documents."""

    folder: Path

    def run(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        """Run a tool in the folder, without telemetry and without a home; return what became of it."""
        quiet = {
            "HOME": str(self.folder), "REDOCLY_TELEMETRY": "off", "REDOCLY_SUPPRESS_UPDATE_NOTICE": "true", "CI": "true",
            "ASYNCAPI_METRICS_CONFIG_PATH": str(self.folder / "analytics.json"),
        }  # fmt: skip
        return subprocess.run(
            [*command], cwd=self.folder, env={**os.environ, **quiet}, capture_output=True, text=True, timeout=900
        )

    def require(self, *command: str | Path) -> str:
        """Run a tool that must succeed; return what it wrote."""
        done = self.run(*command)
        assert done.returncode == 0, f"{command}: exit {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done.stdout + done.stderr

    def tool(self, name: str) -> Path:
        """An installed npm tool."""
        return self.folder / "node_modules" / ".bin" / name

    def altered(self, document: str, change: dict[str, Any]) -> Path:
        """A document with other members, which a tool must refuse."""
        path = self.folder / f"altered-{document}"
        path.write_text(json.dumps(json.loads((self.folder / document).read_text()) | change))
        return path


@pytest.fixture(scope="module")
def workshop(api: PublicApi, tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """The tools, installed from the lock, beside the documents as they are served."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.fail(NODE_MISSING)
    made = Workshop(tmp_path_factory.mktemp("contract-tools"))
    for name in CONFIGURATION:
        shutil.copy(HERE / name, made.folder)
    (made.folder / "analytics.json").write_text('{"analyticsEnabled": "false"}')
    for name, path in (("public.json", "/openapi.json"), ("asyncapi.json", "/asyncapi.json")):
        (made.folder / name).write_bytes(api.admin.http.get(path).content)
    node = node_application(build_services(Settings(database_url="postgresql://nowhere"))).openapi()
    (made.folder / "node.json").write_text(json.dumps(node))
    # Not `npm ci`: it refuses a lock without the optional packages of other platforms, which not every registry has.
    subprocess.run(
        ["npm", "install", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"],
        cwd=made.folder, check=True, timeout=900,
    )  # fmt: skip
    return made


@pytest.mark.parametrize("document", ["public.json", "node.json"])
def test_redocly_has_no_remark(workshop: Workshop, document: str) -> None:
    lint = (workshop.tool("redocly"), "lint", "--config=redocly.yaml")
    workshop.require(*lint, document)
    assert workshop.run(*lint, workshop.altered(document, {"info": {"title": "no version"}})).returncode != 0


@pytest.mark.parametrize("document", ["public.json", "node.json", "asyncapi.json"])
def test_spectral_has_no_remark(workshop: Workshop, document: str) -> None:
    rules = "spectral-asyncapi.yaml" if document == "asyncapi.json" else "spectral-openapi.yaml"
    lint = (workshop.tool("spectral"), "lint", "--fail-severity=hint", f"--ruleset={rules}")
    workshop.require(*lint, document)
    assert workshop.run(*lint, workshop.altered(document, {"info": {"title": "no version"}})).returncode != 0


def test_the_asyncapi_tool_accepts_the_document(workshop: Workshop) -> None:
    validate = (workshop.tool("asyncapi"), "validate")
    workshop.require(*validate, "asyncapi.json", "--fail-severity=warn")
    assert workshop.run(*validate, workshop.altered("asyncapi.json", {"operations": {"x": {}}})).returncode != 0


def test_generated_typescript_compiles(workshop: Workshop) -> None:
    """Types and whole clients, of both listeners, with `uses.ts` beside them: what it marks as wrong must be refused."""
    generated = workshop.folder / "generated"
    for name in ("public", "node"):
        document = workshop.folder / f"{name}.json"
        workshop.require(workshop.tool("openapi-typescript"), document, "-o", generated / f"{name}.d.ts")
        hey = (workshop.tool("openapi-ts"), "--no-log-file", "-i", document, "-o", generated / f"hey-{name}")
        workshop.require(*hey)
    workshop.require(workshop.tool("tsc"), "-p", "tsconfig.json")
    wrong = workshop.folder / "generated" / "wrong.ts"
    wrong.write_text('import type { paths } from "./public";\nexport const none: paths = 1;\n')
    try:
        assert workshop.run(workshop.tool("tsc"), "-p", "tsconfig.json").returncode != 0
    finally:
        wrong.unlink()


def test_the_generated_python_client_keeps_labels(workshop: Workshop) -> None:
    """In an environment of the tool's versions: they differ from those that Berth itself is locked to."""
    python = workshop.folder / "python" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", workshop.folder / "python"], check=True)
    pins = HERE / "openapi-python-client.txt"
    workshop.require(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", pins)
    made = workshop.require(
        python.with_name("openapi-python-client"), "generate", "--path=public.json", "--output-path=berth_client",
        "--meta=none", "--fail-on-warning", "--config", _write_configuration(workshop),
    )  # fmt: skip
    assert "Skipping" not in made, made
    workshop.require(python, "-c", LABELS_KEPT)


def _write_configuration(workshop: Workshop) -> Path:
    """No hooks: they would format the code with a tool that is not installed."""
    path = workshop.folder / "python-client.yaml"
    path.write_text("post_hooks: []\n")
    return path


def test_the_lock_names_no_registry() -> None:
    lock = (HERE / "package-lock.json").read_text()
    assert '"resolved"' not in lock
    assert lock.count('"integrity"') > 1_000, "every package is pinned by its digest"
