"""Regions, SKUs, images, and what is free of them."""

from __future__ import annotations

from typing import Any

from tests.api.calling import (
    GPU_MODEL,
    Caller,
    at_once,
    enrol,
    fresh,
    new_node,
    new_region,
    new_tenant,
    problem,
    refusal,
)
from tests.support.public_api import PublicApi

IMAGE = {"url": "https://images.example/ubuntu.img", "sha256": "ab" * 32, "shapes": ["gpu_slice", "baremetal"]}


def new_sku(admin: Caller, **members: Any) -> Any:
    """A new SKU."""
    body = {"shape": "gpu_slice", "gpu_model": GPU_MODEL, "allowed_counts": [1, 2, 4, 8]}
    return admin.put(f"/admin/skus/{fresh('sku')}", {**body, **members})


def find(caller: Caller, path: str, name: str) -> Any:
    """One of a list by name."""
    return next(item for item in caller.every(path, 500) if item["name"] == name)


def test_regions_are_made_and_renamed(admin: Caller) -> None:
    name = fresh("region")
    made = admin.call("PUT", f"/admin/regions/{name}", {"display_name": "North"})
    changed = admin.call("PUT", f"/admin/regions/{name}", {"display_name": "Far North"})
    assert (made.status_code, changed.status_code) == (201, 200)
    assert find(new_tenant(admin), "/regions", name) == {"name": name, "display_name": "Far North"}
    problem(admin.call("PUT", "/admin/regions/-bad-", {"display_name": "x"}), 422, "invalid")


def test_images_are_made_and_retired(admin: Caller) -> None:
    region, name = new_region(admin), fresh("image")
    body = {**IMAGE, "regions": [region], "gpu_models": [GPU_MODEL]}
    made = admin.call("PUT", f"/admin/images/{name}", body)
    assert made.status_code == 201
    shown = made.json()
    assert shown.pop("statement")["firmware"] == "bios"
    assert shown == {"name": name, **body, "shapes": ["baremetal", "gpu_slice"], "state": "active"}
    retired = admin.call("PUT", f"/admin/images/{name}", {**body, "state": "retired"})
    assert (retired.status_code, retired.json()["state"]) == (200, "retired")
    assert admin.put(f"/admin/images/{name}", body)["state"] == "retired", "left out: it keeps its state"
    assert find(admin, "/admin/images", name)["state"] == "retired"
    assert name not in [image["name"] for image in new_tenant(admin).every("/images", 500)]
    problem(admin.call("PUT", f"/admin/images/{name}", {**body, "regions": ["nowhere"]}), 404, "not_found")
    mistakes: list[dict[str, Any]] = [
        {"sha256": "AB" * 32},
        {"shapes": []},
        {"shapes": ["cube"]},
        {"url": "ftp://x"},
        {"url": "https://a b"},
    ]
    for wrong in mistakes:
        problem(admin.call("PUT", f"/admin/images/{name}", {**body, **wrong}), 422, "invalid")


def test_a_changed_price_is_a_new_version_and_a_forgotten_one_stays(api: PublicApi, admin: Caller) -> None:
    first = new_sku(admin, price_micro_per_gpu_second=500)
    path = f"/admin/skus/{first['name']}"
    body = {"shape": "gpu_slice", "gpu_model": GPU_MODEL, "allowed_counts": [4, 1, 1]}
    kept = admin.put(path, body)
    assert (kept["price_micro_per_gpu_second"], kept["price_version"], kept["allowed_counts"]) == (500, 1, [1, 4])
    dearer = admin.put(path, {**body, "price_micro_per_gpu_second": 700})
    assert (dearer["price_micro_per_gpu_second"], dearer["price_version"]) == (700, 2)
    assert admin.put(path, {**body, "price_micro_per_gpu_second": 700})["price_version"] == 2
    rows = api.database.execute(
        "select price_version, price_micro_per_gpu_second from sku_prices where sku = %s order by 1", (first["name"],)
    )
    assert rows.fetchall() == [(1, 500), (2, 700)]
    assert find(new_tenant(admin), "/skus", first["name"]) == dearer | {"allowed_counts": [1, 4]}


def test_simultaneous_price_changes_each_get_a_version(api: PublicApi, admin: Caller) -> None:
    sku = new_sku(admin)
    body = {"shape": "gpu_slice", "gpu_model": GPU_MODEL, "allowed_counts": [1]}
    path = f"/admin/skus/{sku['name']}"
    prices = [
        lambda price=price: admin.put(path, {**body, "price_micro_per_gpu_second": price}) for price in range(1, 7)
    ]
    versions = {answer["price_version"]: answer["price_micro_per_gpu_second"] for answer in at_once(*prices)}
    assert sorted(versions) == [2, 3, 4, 5, 6, 7]
    rows = api.database.execute(
        "select price_version, price_micro_per_gpu_second from sku_prices where sku = %s and price_version > 1",
        (sku["name"],),
    )
    assert dict(rows.fetchall()) == versions  # type: ignore[arg-type]


def test_a_sku_must_make_sense(admin: Caller) -> None:
    body = {"shape": "gpu_slice", "gpu_model": GPU_MODEL, "allowed_counts": [1]}
    mistakes: list[dict[str, Any]] = [
        {"allowed_counts": []},
        {"allowed_counts": [0]},
        {"allowed_counts": [4097]},
        {"allowed_counts": ["1"]},
        {"price_micro_per_gpu_second": -1},
        {"price_micro_per_gpu_second": 10**15 + 1},
        {"state": "gone"},
    ]
    for wrong in mistakes:
        assert refusal(admin.call("PUT", "/admin/skus/wrong", {**body, **wrong})) == (422, "invalid")
    assert refusal(admin.call("PUT", "/admin/skus/wrong", {**body, "default_image": "no-image"})) == (
        422,
        "image_unavailable",
    )
    assert refusal(admin.call("PUT", "/admin/skus/a%20b", body)) == (422, "invalid")


def test_availability_counts_what_could_be_placed_now(api: PublicApi, admin: Caller) -> None:
    region, model = new_region(admin), fresh("GPU")
    slices = new_sku(admin, gpu_model=model)
    metal = new_sku(admin, gpu_model=model, shape="baremetal", allowed_counts=[4, 8])
    nodes = [new_node(admin, region, gpu_model=model) for _ in range(3)]
    metals = [new_node(admin, region, gpu_model=model, shape="baremetal", slot_count=count) for count in (4, 8)]
    tenant = new_tenant(admin)

    def offered(sku: Any) -> tuple[int, int, int]:
        (item,) = tenant.get("/availability", sku=sku["name"], region=region)["items"]
        return item["free_gpus"], item["largest_now"], item["total_gpus"]

    assert offered(slices) == (0, 0, 0), "nothing has enrolled yet"
    for node in [*nodes, *metals]:
        assert enrol(admin, node["id"]).status_code == 200
    assert offered(slices) == (0, 0, 24), "enrolled, but not heard of yet"
    api.database.execute("update nodes set online = true where region = %s", (region,))
    assert offered(slices) == (24, 8, 24)
    assert offered(metal) == (12, 8, 12)

    api.database.execute("update nodes set free_mask = 7, fit_class = 192 where id = %s", (nodes[0]["id"],))
    api.database.execute("update nodes set free_mask = 1, fit_class = 64 where id = %s", (nodes[1]["id"],))
    admin.make(f"/admin/nodes/{nodes[2]['id']}/cordon")
    assert offered(slices) == (4, 2, 24), "three free on one node serve two at most; the cordoned node serves none"
    api.database.execute("update nodes set free_mask = 127, fit_class = 259 where id = %s", (metals[1]["id"],))
    assert offered(metal) == (4, 4, 12), "a bare-metal node that is partly taken is taken"
    assert tenant.get("/availability", sku="no-such-sku")["items"] == []


def test_lists_page_by_name_without_loss_or_repetition(admin: Caller) -> None:
    names = sorted(admin.put(f"/admin/regions/{fresh('paged')}", {"display_name": "x"})["name"] for _ in range(7))
    paged = [region["name"] for region in new_tenant(admin).every("/regions", 3)]
    assert [name for name in paged if name in names] == names
    assert paged == sorted(set(paged))
    skus = sorted(new_sku(admin)["name"] for _ in range(3))
    assert [sku["name"] for sku in admin.every("/skus", 1) if sku["name"] in skus] == skus


def test_availability_pages_by_sku_and_region(admin: Caller) -> None:
    model = fresh("GPU")
    regions = sorted(new_region(admin) for _ in range(3))
    for region in regions:
        new_node(admin, region, gpu_model=model)
    skus = sorted(new_sku(admin, gpu_model=model)["name"] for _ in range(2))
    offers = [(offer["sku"], offer["region"]) for offer in admin.every("/availability", 1) if offer["sku"] in skus]
    assert offers == [(sku, region) for sku in skus for region in regions]
