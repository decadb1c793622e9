"""A node that cannot serve names refuses new guests, and starts those again that were there."""

from __future__ import annotations

import pytest

from tests.libvirt_driver.network.stage import staged, why_no_name_servers


def test_a_guest_that_was_there_starts_without_names_and_has_them_later() -> None:
    if (reason := why_no_name_servers()) is not None:
        pytest.skip(reason)
    found = staged("tests.libvirt_driver.network.naming.unnamed")
    assert (found["new"], found["again"], found["served"]) == (False, True, 0)
    assert found["tended"] == [True, {"code": 0, "answers": ["10.66.1.11"]}]
