"""A hold that carries its allocation is refused for it as a create would be, at the hold and not at its start."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.api.calling import Caller, Place, fresh, new_tenant, problem, ssh_key
from tests.api.reservations.reserving import HOLDER
from tests.support.public_api import PublicApi
from tests.support.public_api import module_place as place
from tests.support.public_api import module_tenant as tenant

__all__ = ["place", "tenant"]


def new_key(tenant: Caller) -> str:
    """An SSH key of the tenant's."""
    return str(tenant.make("/ssh-keys", {"name": fresh("key"), "public_key": ssh_key()})["id"])


def image(api: PublicApi, **members: Any) -> str:
    """An image that is offered to some."""
    name = fresh("image")
    body = {"url": "https://x/y", "sha256": "ab" * 32, "shapes": ["gpu_slice"], **members}
    api.admin.put(f"/admin/images/{name}", body)
    return name


def both(tenant: Caller, place: Place, members: dict[str, Any], key: str | None = None) -> tuple[Any, Any]:
    """The answers to a create and to a hold with these members of an allocation."""
    gpus = {"sku": place.sku, "gpus": 1, "region": place.region}
    held = {"holder_id": HOLDER, **gpus, "allocation": members}
    return tenant.call("POST", "/allocations", {**gpus, **members}), tenant.call("POST", "/reservations", held, key=key)


def same_refusal(api: PublicApi, tenant: Caller, place: Place, members: dict[str, Any]) -> tuple[int, str]:
    """Status and code of both refusals; the hold's leaves nothing."""
    tables = "select (select count(*) from reservations), (select count(*) from claims)"
    before = api.database.execute(tables).fetchone()
    create, hold = both(tenant, place, members)
    code = create.json()["code"]
    told = problem(hold, create.status_code, code)
    fields = [error["field"] for error in told.get("errors", [])]
    assert fields == [f"allocation.{error['field']}" for error in create.json().get("errors", [])]
    assert api.database.execute(tables).fetchone() == before
    return create.status_code, code


def test_ssh_keys_are_there_and_the_tenants_own(api: PublicApi, tenant: Caller, place: Place) -> None:
    own, others = new_key(tenant), new_key(new_tenant(api.admin))
    gone = new_key(tenant)
    assert tenant.call("DELETE", f"/ssh-keys/{gone}").status_code == 204
    for wrong in (others, gone, str(uuid.uuid4())):
        for keys in ([wrong], [own, wrong], [own, own, wrong]):
            assert same_refusal(api, tenant, place, {"ssh_key_ids": keys}) == (422, "ssh_key_not_found")
    _, hold = both(tenant, place, {"ssh_key_ids": [own, own]})
    assert hold.status_code == 201, hold.text
    assert tenant.call(
        "POST", f"/reservations/{hold.json()['reservation_id']}/cancel", {"holder_id": HOLDER}
    ).is_success


def test_its_image_is_offered_there(api: PublicApi, tenant: Caller, place: Place) -> None:
    keys = [new_key(tenant)]
    wrong = [
        "no-such-image", image(api, shapes=["baremetal"]), image(api, gpu_models=["Other"]), image(api, state="retired"),
    ]  # fmt: skip
    for name in wrong:
        assert same_refusal(api, tenant, place, {"ssh_key_ids": keys, "image": name}) == (422, "image_unavailable")


@pytest.mark.parametrize(
    "members",
    [
        {"ssh_key_ids": []}, {"ssh_key_ids": None}, {"ssh_key_ids": ["x"]}, {"ssh_key_ids": [str(uuid.UUID(int=1))] * 1_000},
        {"labels": {"": "x"}}, {"labels": {"x" * 1_000: "x"}}, {"labels": {"x": "y" * 10_000}}, {"labels": {"x": 5}},
        {"labels": {f"l{n}": "x" for n in range(1_000)}}, {"labels": {"nul\x00": "x"}}, {"labels": ["x"]},
        {"user_data": "x" * 100_000}, {"user_data": "nul\x00"}, {"user_data": 5},
        {"name": ""}, {"name": "x" * 1_000}, {"name": "line\nbreak"}, {"image": ""}, {"image": 5}, {"surprise": 1},
        {"labels": {"berth.fault/boot": "fail"}},
    ],
    ids=lambda members: str(members)[:40],
)  # fmt: skip
def test_bounds(api: PublicApi, tenant: Caller, place: Place, members: dict[str, Any]) -> None:
    body = {"ssh_key_ids": [str(uuid.uuid4())], **members}
    assert same_refusal(api, tenant, place, body) == (422, "invalid")


def test_a_repeated_hold_gets_its_answer_whatever_became_of_the_key(tenant: Caller, place: Place) -> None:
    own, again = new_key(tenant), uuid.uuid4().hex
    made = both(tenant, place, {"ssh_key_ids": [own]}, again)[1]
    refused = both(tenant, place, {"ssh_key_ids": [str(uuid.UUID(int=9))]}, "refused")[1]
    assert tenant.call("DELETE", f"/ssh-keys/{own}").status_code == 204
    assert both(tenant, place, {"ssh_key_ids": [own]}, again)[1].content == made.content
    assert both(tenant, place, {"ssh_key_ids": [str(uuid.UUID(int=9))]}, "refused")[1].content == refused.content
    problem(both(tenant, place, {"ssh_key_ids": [own]})[1], 422, "ssh_key_not_found")
