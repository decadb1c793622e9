"""Tables of the catalogue: regions, images, SKUs and every price that a SKU has had.

Created by migrations/schema/catalogue.sql, which explains columns and indexes; a test keeps both equal.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, CheckConstraint, Column, ForeignKey, Integer, PrimaryKeyConstraint, Table, Text, text
from sqlalchemy.dialects.postgresql import ARRAY

from orchestrator.database.metadata import METADATA, NOW, TIMESTAMPTZ

regions = Table(
    "regions",
    METADATA,
    Column("name", Text, CheckConstraint("name ~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'"), primary_key=True),
    Column("display_name", Text, nullable=False),
    Column("created_at", TIMESTAMPTZ, nullable=False, server_default=NOW),
)

images = Table(
    "images",
    METADATA,
    Column("name", Text, CheckConstraint("length(name) between 1 and 100"), primary_key=True),
    Column("url", Text, CheckConstraint("length(url) <= 2000"), nullable=False),
    Column("sha256", Text, CheckConstraint("sha256 ~ '^[0-9a-f]{64}$'"), nullable=False),
    Column(
        "shapes",
        ARRAY(Text),
        CheckConstraint("shapes <@ array['baremetal', 'gpu_slice'] and cardinality(shapes) > 0"),
        nullable=False,
    ),
    Column("gpu_models", ARRAY(Text)),
    Column("regions", ARRAY(Text)),
    Column("state", Text, CheckConstraint("state in ('active', 'retired')"), nullable=False, server_default="active"),
    Column("created_at", TIMESTAMPTZ, nullable=False, server_default=NOW),
    Column("row_version", BigInteger, nullable=False, server_default=text("1")),
    Column("deleted_at", TIMESTAMPTZ),
)

skus = Table(
    "skus",
    METADATA,
    Column("name", Text, CheckConstraint("length(name) between 1 and 100"), primary_key=True),
    Column("shape", Text, CheckConstraint("shape in ('baremetal', 'gpu_slice')"), nullable=False),
    Column("gpu_model", Text, CheckConstraint("length(gpu_model) between 1 and 100"), nullable=False),
    Column(
        "allowed_counts",
        ARRAY(Integer),
        CheckConstraint("cardinality(allowed_counts) between 1 and 64"),
        nullable=False,
    ),
    Column("default_image", Text, ForeignKey("images.name")),
    Column(
        "price_micro_per_gpu_second",
        BigInteger,
        CheckConstraint("price_micro_per_gpu_second >= 0"),
        nullable=False,
        server_default=text("0"),
    ),
    Column("price_version", BigInteger, nullable=False, server_default=text("1")),
    Column("state", Text, CheckConstraint("state in ('active', 'retired')"), nullable=False, server_default="active"),
    Column("created_at", TIMESTAMPTZ, nullable=False, server_default=NOW),
    Column("row_version", BigInteger, nullable=False, server_default=text("1")),
)

sku_prices = Table(
    "sku_prices",
    METADATA,
    Column("sku", Text, ForeignKey("skus.name"), nullable=False),
    Column("price_version", BigInteger, nullable=False),
    Column("price_micro_per_gpu_second", BigInteger, nullable=False),
    Column("since", TIMESTAMPTZ, nullable=False, server_default=NOW),
    PrimaryKeyConstraint("sku", "price_version"),
)
