"""A primary that is frozen in the middle of a write, with production's deadline: left in time, and nothing is done twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from tests.api.processes import public_process
from tests.database.unconfirmed.scene import prepared, replicated

ABANDONED_SECONDS_MAX = 15.0


@pytest.mark.full
def test_a_frozen_primary_is_abandoned_within_fifteen_seconds(server_directory: Path, tmp_path: Path) -> None:
    with replicated(server_directory) as cluster, public_process(cluster.url, tmp_path / "api") as http:
        act = prepared(http, cluster)["create"]
        with httpx.Client(base_url=http.base_url, timeout=ABANDONED_SECONDS_MAX) as impatient:
            assert act.tenant.call("GET", "/skus").status_code == 200
            cluster.a.freeze()
            refused = act.send(impatient)
            assert (refused.status_code, refused.json()["outcome"]) in ((503, "unknown"), (503, "not_done"))
            new = cluster.fail_over(lambda: None)
            for _ in range(3):
                again = replace(act, tenant=replace(act.tenant, http=impatient)).send()
                if again.status_code == act.status:
                    break
            assert again.status_code == act.status
            assert act.times_done(new) == 1
