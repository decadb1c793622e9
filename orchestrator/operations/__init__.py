"""Operations: client-visible writes, each identified by its idempotency key."""
