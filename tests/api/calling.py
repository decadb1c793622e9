"""The public API under test and its callers: operators, tenants, and nodes that want to enrol."""

from __future__ import annotations

import base64
import hashlib
import itertools
import os
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx
import psycopg
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

GPU_MODEL = "H200"
_numbers = itertools.count(1)
Result = TypeVar("Result")


def fresh(stem: str) -> str:
    """A name that no other test uses."""
    return f"{stem}-{next(_numbers)}"


def ssh_key() -> str:
    """A new, valid public key line; its private half does not exist."""
    parts = b"".join(struct.pack(">I", len(part)) + part for part in (b"ssh-ed25519", os.urandom(32)))
    return f"ssh-ed25519 {base64.b64encode(parts).decode()} user@example"


def signing_request(key: ec.EllipticCurvePrivateKey | None = None) -> str:
    """A certificate signing request that asks for more than it will get."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(
        x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "admin")])
    )
    builder = builder.add_extension(
        x509.SubjectAlternativeName([x509.UniformResourceIdentifier("spiffe://berth.local/node/another")]), False
    )
    own = key or ec.generate_private_key(ec.SECP256R1())
    return builder.sign(own, hashes.SHA256()).public_bytes(Encoding.PEM).decode()


def at_once(*actions: Callable[[], Result]) -> list[Result]:
    """Run the actions at the same time; their results in order."""
    with ThreadPoolExecutor(len(actions)) as pool:
        return [future.result() for future in [pool.submit(action) for action in actions]]


def insert_admin_key(database_url: str) -> str:
    """An operator's key, as the first one of a deployment is made."""
    key = f"berth_{os.urandom(4).hex()}_{base64.urlsafe_b64encode(os.urandom(32)).decode()}"
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(
            "insert into api_keys (role, name, prefix, secret_hash) values ('admin', 'first', %s, %s)",
            (key[6:14], hashlib.sha256(key.encode()).digest()),
        )
    return key


@dataclass(frozen=True)
class Caller:
    """A client of the API, with a key or without one."""

    http: httpx.Client
    key: str | None
    tenant_id: str | None = None

    def call(self, method: str, path: str, body: Any = None, *, key: str | None = None, **query: Any) -> httpx.Response:
        """One request to `/api/v1` + path; `key` is the idempotency key."""
        headers = {} if self.key is None else {"authorization": f"Bearer {self.key}"}
        if key is not None:
            headers["idempotency-key"] = key
        return self.http.request(method, f"/api/v1{path}", json=body, headers=headers, params=query)

    def get(self, path: str, **query: Any) -> Any:
        """The body of a GET that succeeds."""
        answer = self.call("GET", path, **query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def make(self, path: str, body: Any = None) -> Any:
        """The body of a POST that succeeds."""
        answer = self.call("POST", path, body)
        assert answer.status_code in (200, 201, 202), answer.text
        return answer.json()

    def put(self, path: str, body: Any) -> Any:
        """The body of a PUT that succeeds."""
        answer = self.call("PUT", path, body)
        assert answer.status_code in (200, 201), answer.text
        return answer.json()

    def every(self, path: str, limit: int, **query: Any) -> list[Any]:
        """All items of a list, page by page."""
        items: list[Any] = []
        cursor: str | None = None
        while True:
            page = self.get(path, limit=limit, **query, **({} if cursor is None else {"cursor": cursor}))
            assert len(page["items"]) <= limit
            items += page["items"]
            cursor = page["next_cursor"]
            if cursor is None:
                return items
            assert len(page["items"]) == limit, "only the last page may be short"


def problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The problem document of a refusal, checked for what every one of them has."""
    assert refusal(answer) == (status, code), answer.text
    document: dict[str, Any] = answer.json()
    return document


def refusal(answer: httpx.Response) -> tuple[int, str]:
    """The status and the code of a refusal, whose problem document is checked for what every one of them has."""
    assert answer.headers["content-type"] == "application/problem+json", (answer.status_code, answer.text)
    document = answer.json()
    assert document["status"] == answer.status_code
    assert document["outcome"] in ("not_done", "in_progress", "unknown")
    assert {"type", "title", "detail", "server_time"} <= document.keys()
    return answer.status_code, document["code"]


def new_tenant(admin: Caller, **members: Any) -> Caller:
    """A new tenant with a key."""
    tenant = admin.make("/admin/tenants", {"name": fresh("tenant"), "gpus_limit": None, **members})
    key = admin.make("/admin/api-keys", {"name": "test", "role": "tenant", "tenant_id": tenant["id"]})
    return Caller(admin.http, key["key"], tenant["id"])


def new_region(admin: Caller) -> str:
    """A new region."""
    name = fresh("region")
    admin.put(f"/admin/regions/{name}", {"display_name": name.title()})
    return name


def new_node(admin: Caller, region: str, **members: Any) -> Any:
    """A registered node in a region."""
    body = {"name": fresh("node"), "region": region, "gpu_model": GPU_MODEL, "shape": "gpu_slice", "slot_count": 8}
    return admin.make("/admin/nodes", {**body, **members})


def enrol(admin: Caller, node_id: str, hardware_id: str = "machine-1") -> httpx.Response:
    """Enrol a node with a new token."""
    token = admin.make(f"/admin/nodes/{node_id}/enrolment-token", {})["token"]
    body = {"token": token, "hardware_id": hardware_id, "csr_pem": signing_request()}
    return Caller(admin.http, None).call("POST", "/nodes/enroll", body)


@dataclass(frozen=True)
class Place:
    """Where things can be rented: a region with one node in service."""

    region: str
    sku: str
    node: Any


def new_place(admin: Caller, database: psycopg.Connection[Any]) -> Place:
    """Eight GPUs, free, on a node that pretends to be heard of."""
    region, image, sku = new_region(admin), fresh("image"), fresh("sku")
    admin.put(f"/admin/images/{image}", {"url": "https://x/y", "sha256": "ab" * 32, "shapes": ["gpu_slice"]})
    body = {"shape": "gpu_slice", "gpu_model": GPU_MODEL, "allowed_counts": [1, 2, 8], "default_image": image}
    admin.put(f"/admin/skus/{sku}", body)
    node = new_node(admin, region)
    enrol(admin, node["id"])
    database.execute("update nodes set online = true where id = %s", (node["id"],))
    return Place(region, sku, node)


def one_gpu(tenant: Caller, place: Place, **members: Any) -> dict[str, Any]:
    """The body of a create of one GPU, with an SSH key of the tenant's made for it."""
    key = tenant.make("/ssh-keys", {"name": fresh("key"), "public_key": ssh_key()})
    return {"sku": place.sku, "gpus": 1, "region": place.region, "ssh_key_ids": [key["id"]], **members}


def rent(tenant: Caller, place: Place, **members: Any) -> Any:
    """An allocation of one GPU."""
    return tenant.make("/allocations", one_gpu(tenant, place, **members))
