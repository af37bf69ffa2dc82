"""What every graph promises: one piece, mutual links, the degree of its spec."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import shapes
from protocol.ids import PeerId
from protocol.shapes import Regular, SmallWorld, Torus, joined, pieces
from protocol.topology import active, parse_topology

NAMES = st.from_regex(r"[a-z][a-z0-9.-]{0,5}", fullmatch=True).map(PeerId)
ROSTERS = st.lists(NAMES, min_size=1, max_size=60, unique=True)
SEEDS = st.integers(0, 2**31 - 1)
SPECS = st.one_of(
    st.sampled_from(["full", "ring", "torus", "star", "edges:a b,b c,c d"]),
    st.integers(2, 70).map(lambda degree: f"k-regular:{degree}"),
    st.tuples(st.integers(1, 35), st.sampled_from([0.0, 0.1, 0.5, 1.0])).map(
        lambda drawn: f"small-world:{2 * drawn[0]},{drawn[1]}"
    ),
)


@given(ROSTERS, SPECS, SEEDS)
def test_a_graph_is_in_one_piece_and_mutual(roster: list[PeerId], spec: str, seed: int) -> None:
    graph = parse_topology(spec).graph(roster, seed)
    assert sorted(graph) == sorted(roster)
    assert len(pieces(graph)) == 1
    for peer, others in graph.items():
        assert peer not in others
        assert list(others) == sorted(set(others))
        assert all(peer in graph[other] for other in others)


@given(ROSTERS, SPECS, SEEDS)
def test_the_order_of_the_roster_does_not_matter(
    roster: list[PeerId], spec: str, seed: int
) -> None:
    mixed = roster * 2
    Random(seed).shuffle(mixed)
    topology = parse_topology(spec)
    assert topology.graph(roster, seed) == topology.graph(mixed, seed)


@given(ROSTERS, st.integers(2, 60), SEEDS)
def test_a_regular_graph_has_its_degree(roster: list[PeerId], degree: int, seed: int) -> None:
    topology = parse_topology(f"k-regular:{degree}")
    allowed = min(degree, len(roster) - 1)
    allowed -= allowed * len(roster) % 2
    graph = topology.graph(roster, seed)
    assert {len(others) for others in graph.values()} == {allowed}
    assert (allowed == degree) == (not topology.shape.misfit(len(roster)))


@given(st.integers(5, 60))
def test_a_torus_gives_four_neighbours_from_five_peers_up(num_peers: int) -> None:
    order = tuple(PeerId(f"{number:02}") for number in range(num_peers))
    assert {len(others) for others in joined(order, Torus().links(order, 0)).values()} == {4}


@given(ROSTERS, st.integers(1, 30), st.floats(0.0, 1.0), SEEDS)
def test_a_small_world_has_the_links_of_its_ring(
    roster: list[PeerId], half: int, moved: float, seed: int
) -> None:
    graph = parse_topology(f"small-world:{2 * half},{moved}").graph(roster, seed)
    degrees = [len(others) for others in graph.values()]
    if 2 * half >= len(roster) - 1:
        assert set(degrees) == {len(roster) - 1}
    else:
        assert sum(degrees) == 2 * half * len(roster)
        assert min(degrees) >= half


@given(st.integers(4, 60), st.integers(2, 30), SEEDS)
def test_the_constructed_way_out_keeps_the_promises(num_peers: int, degree: int, seed: int) -> None:
    order = tuple(PeerId(f"{number:02}") for number in range(num_peers))
    degree = min(degree, num_peers // 2)
    degree -= degree * num_peers % 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shapes, "TRIES", 0)
        regular = joined(order, Regular(degree).links(order, seed))
        world = joined(order, SmallWorld(2, 1.0).links(order, seed))
    assert {len(others) for others in regular.values()} == {degree}
    assert len(pieces(regular)) == 1
    assert {len(others) for others in world.values()} == {2}  # nothing of a ring may move
    assert len(pieces(world)) == 1


@given(ROSTERS, st.floats(0.001, 1.0), SEEDS, st.integers(1, 1000))
def test_the_active_peers_are_the_share_that_was_asked_for(
    roster: list[PeerId], share: float, seed: int, round_no: int
) -> None:
    members = active(roster, share, seed, round_no)
    assert set(members) <= set(roster)
    assert len(members) == max(1, int(share * len(roster) + 0.5))
    assert members == active(roster[::-1], share, seed, round_no)
