"""Generated reference pages equal what their generators write now."""

from __future__ import annotations

import runpy

import pytest

from tests.deploy.deployment import DEPLOY, ROOT

REFERENCE = ROOT / "docs" / "reference"


@pytest.mark.parametrize(
    ("generator", "page"),
    [
        ("environment_reference.py", "configuration.md"),
        ("event_reference.py", "event-types.md"),
        ("http_reference.py", "http-paths.md"),
        ("role_reference.py", "access/roles.md"),
        ("sql_function_reference.py", "sql-function-catalogue.md"),
    ],
)
def test_a_generated_page_is_what_its_generator_writes(generator: str, page: str) -> None:
    written = (REFERENCE / page).read_text()
    assert written == runpy.run_path(str(DEPLOY / generator))["page"](), f"run `make references` ({generator})"


@pytest.mark.parametrize(
    ("generator", "page"), [("failure_reference.py", "failures.md"), ("problem_reference.py", "http-api.md")]
)
def test_a_generated_table_is_what_its_generator_writes(generator: str, page: str) -> None:
    written = (REFERENCE / page).read_text()
    names = runpy.run_path(str(DEPLOY / generator))
    assert written == names["page_with_table"](written), f"run `make references` ({generator})"
    assert names["table"]() in written


def test_every_path_and_schema_of_the_api_has_its_row() -> None:
    written = (REFERENCE / "http-paths.md").read_text()
    generator = runpy.run_path(str(DEPLOY / "http_reference.py"))
    for _, document in generator["documents"]():
        assert len(document["paths"]) > 3
        for path, operations in document["paths"].items():
            for method in operations:
                assert f"| {method.upper()} `{path}` |" in written
        for name in document["components"]["schemas"].keys() - generator["UNLISTED"]:
            assert f"\n### {name}\n" in written
