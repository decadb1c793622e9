"""Writes the table of docs/reference/failures.md from the catalogue of failures; `--check` only says whether it is up to date."""

from __future__ import annotations

import sys
from pathlib import Path

from orchestrator.allocations.failures import FAILURES, Failure, Retried

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "failures.md"
BEGIN, END = "<!-- table: begin -->\n", "<!-- table: end -->\n"
HEAD = (
    "| code | what happened | lands in | fault switch | tried again | actor and action |\n|---|---|---|---|---|---|\n"
)
RETRIED = {
    Retried.NOT: "no",
    Retried.PROVISION: "up to `BERTH_PROVISION_ATTEMPTS_MAX`",
    Retried.RELEASE: "up to `BERTH_RELEASE_ATTEMPTS_MAX`",
}


def table() -> str:
    """The table in Markdown, a row for each code in the catalogue's order."""
    return HEAD + "".join(_row(failure) for failure in FAILURES.values())


def _row(failure: Failure) -> str:
    switch = f"`{failure.switch}`" if failure.switch else "-"
    cells = (
        f"`{failure.code}`", failure.happened, failure.lands_in.value, switch, RETRIED[failure.retried],
        f"`{failure.acts}`: {failure.next_step}",
    )  # fmt: skip
    return f"| {' | '.join(cells)} |\n"


def page_with_table(page: str) -> str:
    """The page with the table as it should be."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table()}{END}{after}"


def main() -> int:
    """Write the page, or with `--check` answer 1 if it is not what it should be."""
    page = PAGE.read_text()
    wanted = page_with_table(page)
    if "--check" in sys.argv[1:]:
        return int(page != wanted)
    PAGE.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
