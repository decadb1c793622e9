"""One application and database for a module's tests, and a tenant with an empty namespace for each."""

from __future__ import annotations

import pytest

from tests.api.calling import new_tenant
from tests.keyvalue.committing import Keys
from tests.support.public_api import PublicApi, api

__all__ = ["api"]


@pytest.fixture
def keys(api: PublicApi) -> Keys:
    """A tenant's."""
    return Keys(new_tenant(api.admin))
