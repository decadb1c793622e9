"""Tables of the catalogue: regions, images, SKUs and every price that a SKU has had.

Created by migrations/schema/catalogue.sql, which explains columns and indexes; a test keeps both equal.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
)
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
    Column("format", Text, CheckConstraint("format in ('qcow2', 'raw')", name="image_format_is_known")),
    Column(
        "firmware",
        Text,
        CheckConstraint("firmware in ('bios', 'uefi')", name="image_firmware_is_known"),
        nullable=False,
        server_default="bios",
    ),
    Column(
        "login_user",
        Text,
        CheckConstraint("login_user ~ '^[a-z_][a-z0-9_-]{0,31}$'", name="image_login_user_is_a_name"),
        nullable=False,
        server_default="tenant",
    ),
    Column("cloud_init", Boolean, nullable=False, server_default=text("true")),
    Column(
        "readiness",
        Text,
        CheckConstraint("readiness in ('message', 'ssh', 'tcp_port')", name="image_readiness_is_known"),
        nullable=False,
        server_default="message",
    ),
    Column(
        "readiness_port",
        Integer,
        CheckConstraint("readiness_port between 1 and 65535", name="image_readiness_port_is_a_port"),
    ),
    Column("disk_bytes_min", BigInteger, CheckConstraint("disk_bytes_min > 0", name="image_disk_is_positive")),
    Column("size_bytes", BigInteger, CheckConstraint("size_bytes > 0", name="image_size_is_positive")),
    Column(
        "gpu_driver_version",
        Text,
        CheckConstraint(
            "gpu_driver_version ~ '^[0-9]{1,6}([.][0-9]{1,6}){1,3}$'", name="image_gpu_driver_is_a_version"
        ),
    ),
    Column("fabric_manager_version", Text),
    CheckConstraint("cloud_init or readiness <> 'message'", name="image_message_needs_cloud_init"),
    CheckConstraint("(readiness = 'tcp_port') = (readiness_port is not null)", name="image_port_is_of_tcp_port"),
    CheckConstraint(
        "fabric_manager_version is null"
        " or (gpu_driver_version is not null and fabric_manager_version = gpu_driver_version)",
        name="image_fabric_manager_is_of_the_driver",
    ),
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
    Column(
        "vcpus_per_gpu",
        Integer,
        CheckConstraint("vcpus_per_gpu between 1 and 256", name="sku_vcpus_are_bounded"),
    ),
    Column(
        "memory_bytes_per_gpu",
        BigInteger,
        CheckConstraint(
            "memory_bytes_per_gpu between 67108864 and 70368744177664 and memory_bytes_per_gpu % 1048576 = 0",
            name="sku_memory_is_bounded",
        ),
    ),
    CheckConstraint(
        "shape = 'gpu_slice' or num_nonnulls(vcpus_per_gpu, memory_bytes_per_gpu) = 0", name="sku_size_is_of_slices"
    ),
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
