"""Changes of a node over HTTP: null is not absence, also for a repeated key."""

from __future__ import annotations

from tests.api.calling import fresh, new_node, new_region
from tests.support.public_api import PublicApi


def test_null_removes_an_address_and_an_absent_member_leaves_it(api: PublicApi) -> None:
    path = f"/admin/nodes/{new_node(api.admin, new_region(api.admin))['name']}"

    def changed(body: object, key: str | None = None) -> object:
        answer = api.admin.call("PATCH", path, body, key=key)
        return answer.json()["address"] if answer.status_code == 200 else (answer.status_code, answer.json()["code"])

    assert changed({"address": "bmc-7", "half_slots": 3}) == "bmc-7"
    assert changed({"half_slots": 4}) == "bmc-7"
    assert changed({}) == (422, "invalid")
    assert changed({"half_slots": None}) == (422, "invalid")
    key = fresh("key")
    assert changed({"half_slots": 4}, key) == "bmc-7"
    assert changed({"half_slots": 4, "address": None}, key) == (422, "operation_conflict")
    assert changed({"address": None}) is None
    assert api.admin.get(path)["half_slots"] == 4
