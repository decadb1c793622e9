"""HTTP, one module per trust zone: tenant, admin, node. Validation in, problem documents out."""
