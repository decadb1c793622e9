"""The slot picker of the database chooses what the pure chooser chooses (its oracle), on random fleets."""

from __future__ import annotations

import random
from uuid import UUID

import psycopg
import pytest

from orchestrator.placement.inventory import Layout
from orchestrator.placement.ranking import decide
from orchestrator.placement.windows import FreeNode, choose

LAYOUTS = (Layout(8, 4), Layout(6, 2))
SETUP = """
insert into regions values ('r', 'r');
insert into pools (region, gpu_model, shape) values ('r', 'm', 'gpu_slice') returning id;
"""
NODE = """
insert into nodes (id, name, pool_id, region, gpu_model, shape, slot_count, half_slots, unit_base, state, online, free_mask,
                   fit_class, placement_rank)
values (%s, %s, 1, 'r', 'm', 'gpu_slice', %s, %s, %s, 'active', true, %s, %s, %s)
"""
PICKS = """
select node_id, units from choose_by_mask(1, 'gpu_slice', %s, %s, %s::smallint[], %s::smallint[], %s::smallint[], %s)
"""


def fleet(seed: random.Random) -> list[FreeNode]:
    """One to six nodes with random free slots, each at its own place in the order of nodes."""
    nodes = []
    for rank in seed.sample(range(100), seed.randint(1, 6)):
        layout = seed.choice(LAYOUTS)
        node_id = UUID(int=seed.getrandbits(128))
        nodes.append(FreeNode(node_id, 100 * rank, layout, rank, seed.getrandbits(layout.slot_count)))
    return nodes


@pytest.mark.parametrize("wait", [False, True])
def test_the_database_picks_what_the_pure_chooser_picks(database_url: str, wait: bool) -> None:
    seed = random.Random(7)
    complete = 0
    with psycopg.connect(database_url) as connection:
        connection.execute(SETUP.encode())
        connection.commit()
        for _ in range(300):
            nodes, gpus, count = fleet(seed), seed.randint(1, 4), seed.randint(1, 3)
            decision = decide("gpu_slice", gpus, LAYOUTS)
            for node in nodes:
                fit = node.fit.number
                values = (node.node_id, f"n{node.rank}", node.layout.slot_count, node.layout.half_slots, node.unit_base)
                connection.execute(NODE, (*values, node.mask, fit, node.rank))
            classes = [choice.fit.number for choice in decision.choices]
            lows, highs = [choice.low for choice in decision.choices], [choice.high for choice in decision.choices]
            rows = connection.execute(PICKS, (gpus, count, classes, lows, highs, wait)).fetchall()
            connection.rollback()
            picked = [
                (node_id, {unit for part in units for unit in range(part.lower, part.upper)}) for node_id, units in rows
            ]
            wanted = [
                (pick.node_id, {pick.unit_base + slot for slot in range(64) if pick.mask >> slot & 1})
                for pick in choose(decision, "gpu_slice", gpus, nodes, [], count).picks
            ]
            assert picked == (wanted if len(wanted) == count else [])
            complete += bool(picked)
    assert 50 < complete < 300
