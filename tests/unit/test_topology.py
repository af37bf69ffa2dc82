"""Topologies on paper: small rosters, every refusal, files of links."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from protocol.errors import ConfigError, LocalProtocolError
from protocol.ids import PeerId
from protocol.shapes import joined, pieces
from protocol.topology import (
    Graph,
    active,
    check_carried,
    check_participation,
    neighbours,
    parse_topology,
)


def peers(num_peers: int) -> list[PeerId]:
    return [PeerId(f"p{number}") for number in range(num_peers)]


def drawn(graph: Graph) -> str:
    """Each link once, by the digits of its ends: "01 12"."""
    return " ".join(f"{one[1:]}{other[1:]}" for one in graph for other in graph[one] if one < other)


@pytest.mark.parametrize(
    ("spec", "num_peers", "links"),
    [
        ("full", 1, ""),
        ("full", 2, "01"),
        ("full", 4, "01 02 03 12 13 23"),
        ("ring", 1, ""),
        ("ring", 2, "01"),
        ("ring", 5, "01 04 12 23 34"),
        ("star", 1, ""),
        ("star", 2, "01"),
        ("star", 4, "01 02 03"),
        ("torus", 1, ""),
        ("torus", 2, "01"),
        ("torus", 4, "01 03 12 23"),
        # 0 1 2
        # 3 4 5
        # 6 7 8
        ("torus", 9, "01 02 03 06 12 14 17 25 28 34 35 36 45 47 58 67 68 78"),
        # 7 is prime: a helix of the steps 1 and 2
        ("torus", 7, "01 02 05 06 12 13 16 23 24 34 35 45 46 56"),
        ("k-regular:4", 5, "01 02 03 04 12 13 14 23 24 34"),
        ("small-world:2,0", 2, "01"),
    ],
)
def test_a_topology_links_these_peers(spec: str, num_peers: int, links: str) -> None:
    assert drawn(parse_topology(spec).graph(peers(num_peers), seed=7)) == links


GOLDEN = {
    "k-regular:3": "04 05 06 14 15 17 23 26 27 36 37 45",
    "k-regular:5": "01 02 05 06 07 12 13 14 16 23 24 25 34 35 37 46 47 56 57 67",
    "small-world:4,0.3": "02 04 06 07 12 14 15 16 23 24 34 35 36 37 57 67",
}


@pytest.mark.parametrize("spec", GOLDEN)
def test_a_random_topology_is_the_same_on_every_machine(spec: str) -> None:
    assert drawn(parse_topology(spec).graph(peers(8), seed=7)) == GOLDEN[spec]


def test_another_process_with_other_hashes_draws_the_same_graph() -> None:
    program = (
        "from tests.unit.test_topology import *\n"
        "for spec in GOLDEN: print(drawn(parse_topology(spec).graph(peers(8), seed=7)))"
    )
    told = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONHASHSEED": "12345"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.splitlines() == list(GOLDEN.values())


def test_another_seed_draws_another_graph() -> None:
    topology = parse_topology("k-regular:3")
    assert topology.graph(peers(20), seed=1) != topology.graph(peers(20), seed=2)


def test_a_peer_that_leaves_moves_few_links_of_a_random_graph() -> None:
    topology = parse_topology("k-regular:4")
    before = topology.graph(peers(40), seed=3)
    after = topology.graph(peers(39), seed=3)  # p39 is gone
    kept = sum(len(set(before[peer]) & set(after[peer])) for peer in after)
    assert kept >= 0.8 * 39 * 4


def test_neighbours_stand_in_order_of_name() -> None:
    graph = parse_topology("full").graph([PeerId("c"), PeerId("a"), PeerId("b")], seed=0)
    assert neighbours(graph, PeerId("b")) == ("a", "c")


def test_a_peer_outside_the_roster_has_no_neighbours_to_ask_for() -> None:
    graph = parse_topology("ring").graph(peers(2), seed=0)
    with pytest.raises(LocalProtocolError, match="p9 is not in a graph of p0, p1"):
        neighbours(graph, PeerId("p9"))


def test_nobody_has_an_empty_graph() -> None:
    assert parse_topology("k-regular:4").graph([], seed=0) == {}


def test_the_regular_degree_gives_way_to_the_number_of_peers() -> None:
    degrees = {
        num_peers: {len(others) for others in graph.values()}
        for num_peers in (1, 2, 3, 6, 7)
        for graph in [parse_topology("k-regular:5").graph(peers(num_peers), seed=0)]
    }
    assert degrees == {1: {0}, 2: {1}, 3: {2}, 6: {5}, 7: {4}}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("fully", "there is no topology 'fully' - did you mean full?"),
        ("", "there is no topology ''"),
        ("small_world:4,0.1", "did you mean small-world?"),
        ("Ring", "did you mean ring?"),
        ("ring:3", "topology ring takes nothing after it, got '3'"),
        ("k-regular", "k of k-regular must be a whole number of at least 2, got ''"),
        ("k-regular:1", "at least 2, got '1' - for example k-regular:4"),
        ("k-regular:two", "got 'two'"),
        ("small-world:3,0.1", "k of small-world must be even, got 3"),
        ("small-world:4", "p of small-world must be in \\[0, 1\\], got ''"),
        ("small-world:4,1.5", "got '1.5'"),
        ("small-world:4,nan", "got 'nan'"),
        ("file:", "topology file needs a path"),
        ("file:nowhere.txt", "cannot read the links of nowhere.txt: No such file"),
        ("edges:a", "edges, link 1: a link is two names, got 'a'"),
        ("edges:", "edges, link 1: no link"),
    ],
)
def test_a_spec_is_refused_with_what_is_allowed(spec: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse_topology(spec)


@pytest.mark.parametrize(
    ("spec", "num_peers", "words"),
    [
        ("k-regular:4", 4, "topology k-regular:4 does not fit 4 peers: k must be below 4"),
        ("k-regular:3", 7, "an odd number of peers needs an even k, for example 2"),
        ("small-world:4,0.1", 3, "k must be below 3"),
        ("star", 1, "a star needs a centre and one more peer"),
        ("edges:a b,b c", 4, "its links name 3 only"),
    ],
)
def test_a_configuration_is_held_to_the_letter(spec: str, num_peers: int, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse_topology(spec).check(num_peers)


@pytest.mark.parametrize("spec", ["full", "ring", "torus", "star", "k-regular:3", "edges:a b"])
def test_a_configuration_that_fits_passes(spec: str) -> None:
    parse_topology(spec).check(2 if spec.startswith("edges") else 8)


@pytest.mark.parametrize(
    "spec", ["full", "k-regular:4", "small-world:4,0.25", "star", "edges:a b,b c"]
)
def test_the_canonical_spec_reads_back(spec: str) -> None:
    topology = parse_topology(f"  {spec} ")
    assert topology.spec == spec
    assert parse_topology(topology.spec) == topology


# -- files of links -------------------------------------------------------------------------


def write(folder: Path, text: str) -> str:
    path = folder / "links.txt"
    path.write_text(text)
    return f"file:{path}"


def test_a_short_file_of_links_travels_in_the_manifest(tmp_path: Path) -> None:
    topology = parse_topology(write(tmp_path, "# a path\nb c  # last\n\na b\nb a\n"))
    assert topology.spec == "edges:a b,b c"
    assert dict(topology.graph([PeerId("c"), PeerId("b"), PeerId("a")], seed=0)) == {
        "a": ("b",),
        "b": ("a", "c"),
        "c": ("b",),
    }


def test_a_long_file_of_links_must_be_the_same_on_every_host(tmp_path: Path) -> None:
    text = "".join(f"p{number} p{number + 1}\n" for number in range(200))
    path = write(tmp_path, text)
    topology = parse_topology(path)
    assert topology.spec.startswith(f"{path}#")
    assert parse_topology(topology.spec) == topology
    write(tmp_path, text + "p0 p200\n")
    with pytest.raises(ConfigError, match="are not those of the run"):
        parse_topology(topology.spec)


SECRETS = {
    "a key": '{"format": "kinfolk-key-1", "curve_secret": "c2VjcmV0"}\n',
    "two words a line": "user secret\nuser other\n",
    "a word": "secret\n",
    "nothing": "",
    "no text": "\udcff\udcfe",
}


@pytest.mark.parametrize("text", SECRETS.values(), ids=SECRETS)
def test_of_a_file_that_somebody_elses_manifest_names_nothing_is_told(
    text: str, tmp_path: Path
) -> None:
    path = tmp_path / "own"
    path.write_text(text, errors="surrogateescape")
    with pytest.raises(ConfigError) as refused:
        parse_topology(f"file:{path}#{'0' * 16}")
    assert str(refused.value) == (
        f"the links in {path} are not those of the run, whose digest is {'0' * 16} - copy the "
        "file from where the run was started"
    )
    assert refused.value.__cause__ is None


@pytest.mark.timeout(10)
def test_what_is_no_plain_file_is_not_opened_by_somebody_elses_word(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, tmp_path / "nothing", "/dev/tty", "x" * 5000):
        with pytest.raises(ConfigError, match=r"there is no file .* here, whose links"):
            parse_topology(f"file:{path}#{'0' * 16}")


@pytest.mark.parametrize("spec", ["file:links.txt", "file: /etc/passwd", "file:", "file:a#b"])
def test_a_manifest_carries_no_file_without_the_digest_of_its_links(spec: str) -> None:
    with pytest.raises(ConfigError, match="names a file that other hosts do not have"):
        check_carried(spec)


@pytest.mark.parametrize("spec", ["full", "", f"file:links.txt#{'0' * 16}", "edges:a b"])
def test_everything_else_may_be_carried(spec: str) -> None:
    check_carried(spec)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a b\nb c d\n", "line 2: a link is two names, got 'b c d'"),
        ("a b\n\nb b\n", "line 3: b is linked to itself"),
        ("a b\nb ../c\n", "line 2: name '../c' cannot be used"),
        ("# nothing\n", "no link"),
        ("a b\nx y\nb c\n", "line 2: x y is not connected to a and its 2 others"),
    ],
)
def test_a_file_of_links_is_refused_by_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse_topology(write(tmp_path, text))


def test_bytes_are_no_file_of_links(tmp_path: Path) -> None:
    (tmp_path / "links.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="is not a text of links"):
        parse_topology(f"file:{tmp_path / 'links.txt'}")


def test_a_listed_name_that_is_no_peer_is_refused() -> None:
    topology = parse_topology("edges:a b,b c")
    with pytest.raises(ConfigError, match="c: not a peer of this run - the peers are a, b"):
        topology.check_names([PeerId("a"), PeerId("b")])


def test_a_peer_that_no_link_names_is_refused() -> None:
    topology = parse_topology("edges:a b")
    with pytest.raises(ConfigError, match="c: without a link"):
        topology.check_names([PeerId("a"), PeerId("b"), PeerId("c")])


def test_a_chain_that_lost_its_middle_is_chained_again() -> None:
    topology = parse_topology("edges:p0 p1,p1 p2,p2 p3,p3 p4")
    present = [peer for peer in peers(6) if peer != "p2"]  # p5 came, which no link names
    assert drawn(topology.graph(present, seed=0)) == "01 03 34 35"


# -- participation --------------------------------------------------------------------------


def test_half_of_eight_peers_are_active_and_the_same_on_every_machine() -> None:
    assert active(peers(8), 0.5, seed=7, round_no=1) == ("p1", "p3", "p4", "p7")
    assert active(peers(8), 0.5, seed=7, round_no=2) == ("p1", "p2", "p5", "p6")


def test_a_small_share_leaves_one_peer_active() -> None:
    assert len(active(peers(8), 0.01, seed=0, round_no=1)) == 1


def test_everybody_is_active_at_a_share_of_one() -> None:
    assert active(peers(3), 1.0, seed=0, round_no=5) == ("p0", "p1", "p2")


def test_each_peer_is_active_about_as_often_as_its_share() -> None:
    rounds = [active(peers(10), 0.3, seed=0, round_no=round_no) for round_no in range(400)]
    turns = [sum(peer in members for members in rounds) for peer in peers(10)]
    assert sum(turns) == 400 * 3
    assert all(90 <= count <= 150 for count in turns)  # 120 expected, deviation 9


@pytest.mark.parametrize("share", [0.0, -0.1, 1.5, float("nan")])
def test_a_share_out_of_bounds_is_refused(share: float) -> None:
    with pytest.raises(ConfigError, match="participation must be above 0 and at most 1"):
        check_participation(share)


def test_pieces_start_with_their_first_peer() -> None:
    a, b, c, d = (PeerId(name) for name in "abcd")
    assert pieces(joined([a, b, c, d], [(a, c), (d, b)])) == [[a, c], [b, d]]
