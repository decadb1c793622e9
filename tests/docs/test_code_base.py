"""What pages say of the code base is what the tree has: counts, nouns, processes, benchmarks, and what `make test` runs."""

from __future__ import annotations

import ast
import re

import pytest
import yaml

from benchmarks.__main__ import KNOWN
from tests.architecture.code_base import counts, nouns
from tests.architecture.measures import ROOT, tracked
from tests.architecture.source_modules import nodes, parsed

EXPLANATION = ROOT / "docs" / "explanation"
TOLERATED = 0.1
"""By how much of the count a page may be wrong, so that few changes of the code change the page."""


def is_near(stated: str, count: int) -> bool:
    """Whether a page's figure is about the count."""
    return abs(int(stated.replace(",", "")) - count) <= TOLERATED * count


def test_the_page_states_each_count() -> None:
    table = (EXPLANATION / "code-base.md").read_text().partition("\n| measure | now |\n")[2].partition("\n\n")[0]
    stated = dict(re.findall(r"^\| (.+) \| about ([\d,]+) \|$", table, re.MULTILINE))
    counted = counts()
    assert stated.keys() == counted.keys()
    assert {name: (stated[name], count) for name, count in counted.items() if not is_near(stated[name], count)} == {}


def test_the_page_of_the_mutants_states_how_many_there_are() -> None:
    text = (EXPLANATION / "mutants.md").read_text()
    found = re.search(r"about ([\d,]+) mutants and the selection about (\d+), .* about (\d+) minutes", text)
    assert found is not None
    counted = counts()
    names = (
        "mutants in the catalogue",
        "mutants that `make mutants` plants",
        "minutes of `make mutants` on two idle cores, expected",
    )
    assert [name for name, one in zip(names, found.groups(), strict=True) if not is_near(one, counted[name])] == []


@pytest.mark.parametrize(("stated", "near"), [("1,390", True), ("1,260", True), ("1,200", False), ("1,600", False)])
def test_a_figure_that_is_wrong_by_more_than_a_tenth_is_found(stated: str, near: bool) -> None:
    assert is_near(stated, 1_392) == near


def test_the_architecture_names_every_noun() -> None:
    text = (EXPLANATION / "architecture.md").read_text()
    listed = text.partition("One noun is one folder in `orchestrator`:")[2].partition(".\n")[0]
    assert sorted(re.findall(r"\w+", listed)) == sorted(nouns())


def test_the_architecture_names_every_process() -> None:
    """Those of the composition, and those of `node_agent`."""
    services = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())["services"].values()
    commands = [" ".join(service.get("command", [])[2:]) for service in services if "-m" in service.get("command", [])]
    agents = re.findall(
        r"`python -m (node_agent --(?!check)\w+)`", str(ast.get_docstring(parsed(ROOT / "node_agent" / "__main__.py")))
    )
    assert len(commands) >= 5
    assert len(agents) == 2
    table = (EXPLANATION / "architecture.md").read_text().partition("\n## Processes\n")[2].partition("\n- ")[0]
    assert [process for process in [*commands, *agents] if f"| `{process}`" not in table] == []


def test_the_page_names_every_benchmark() -> None:
    page = (ROOT / "docs" / "reference" / "performance.md").read_text()
    assert [name for name in KNOWN if f"| `{name}` | " not in page] == []


def test_the_page_of_the_commands_names_every_finding_of_doctor() -> None:
    subjects = {
        node.args[0].value
        for path in tracked("berth/cli/deployment/*.py")
        for node in nodes(path)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == "Finding"
        and node.args
        and isinstance(node.args[0], ast.Constant)
    }
    page = (ROOT / "docs" / "reference" / "cli.md").read_text()
    section = page.partition("\nberth doctor\n")[2].partition("- **`verify`**")[0]
    assert len(subjects) > 30
    assert [subject for subject in sorted(map(str, subjects)) if f"`{subject}`" not in section] == []


def quick_tests(path: str) -> list[str]:
    """The test functions of a file that are not marked `full` as a whole."""
    return [
        node.name
        for node in parsed(ROOT / path).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and "pytest.mark.full" not in [ast.unparse(decorator) for decorator in node.decorator_list]
    ]


def test_what_pages_say_to_run_in_make_test_does() -> None:
    named = [
        (page.name, path)
        for page in tracked("docs/*.md")
        for line in re.findall(r"^.*\(`make test`\).*$", page.read_text(), re.MULTILINE)
        for path in re.findall(r"`(tests/[\w/]+\.py)`", line.partition("(`make test`)")[0])
    ]
    assert named != []
    assert [(page, path) for page, path in named if not quick_tests(path)] == []
