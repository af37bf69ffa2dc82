"""What a person reads while a run gathers."""

from coordinator.changes import changes, status_line
from tests.unit.coordinator.town import LEASE_S, A, B, C, Node, Town


def test_the_way_of_a_run_is_told_line_by_line() -> None:
    town = Town(founders=2)
    view = town.directory.view
    assert status_line(view) == "0 of 2 peers ready"
    told = []
    for step in (
        lambda: town.join(A),
        lambda: town.ready(A),
        lambda: town.ready(B),
        lambda: town.wait(LEASE_S),
        lambda: town.renew(A),
        lambda: town.leave(A),
    ):
        step()
        told += [change.text for change in changes(view, town.directory.view)]
        view = town.directory.view
    assert told == [
        "a joined as a peer at tcp://10.0.0.1:4000",
        "a is ready: 1 of 2 peers ready: a; waiting for 1",
        "b is ready: 2 peers, newest round 0",
        "the run starts: a, b",
        "a is lost: no sign of life for a whole lease",
        "b is lost: no sign of life for a whole lease",
        "a is back at tcp://10.0.0.1:4000",
        "a left",
    ]


def test_who_is_lost_stands_in_the_status() -> None:
    town = Town(founders=1)
    town.ready(A)
    town.now_s = 1.0
    town.ready(C)
    town.wait(LEASE_S - 1.0)
    assert status_line(town.directory.view) == "1 peer, newest round 0; lost: a"


def test_a_relay_that_is_building_its_model_is_what_the_lobby_waits_for() -> None:
    town = Town(founders=1)
    town.join(C.but(role="relay"))
    town.ready(A)
    assert status_line(town.directory.view) == "1 of 1 peers ready: a; waiting for c"


def test_a_long_list_of_names_is_cut() -> None:
    town = Town(founders=20)
    town.ready(*[Node(f"n{number:02}") for number in range(15)])
    assert status_line(town.directory.view).endswith("n10, n11 and 3 more; waiting for 5")


def test_without_a_view_before_everything_is_new() -> None:
    town = Town()
    town.join(A)
    assert [change.event for change in changes(None, town.directory.view)] == ["joined"]
