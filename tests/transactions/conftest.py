"""One application and database for a module's tests, and a tenant with an empty namespace for each."""

from __future__ import annotations

import pytest

from tests.api.calling import new_tenant
from tests.support.public_api import PublicApi, api
from tests.transactions.committing import Keys

__all__ = ["api"]


@pytest.fixture
def keys(api: PublicApi) -> Keys:
    """A tenant's."""
    return Keys(new_tenant(api.admin))
