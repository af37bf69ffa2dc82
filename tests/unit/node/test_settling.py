"""Who settles a run's manifest, and with what: nothing that its own peer could not build."""

from pathlib import Path

from peer.effects import Over
from peer.faults.reading import read_faults
from peer.options.fields import Value
from peer.settings import complete
from peer.work import Failed, Prepare
from protocol.manifest import Manifest
from tests.unit.node.dweller import Dweller
from tests.unit.node.valley import Valley, ends

CANNOT_BUILD = Failed("lenet5 needs 12x12 or more, got 8x8", operator=True)


def world_of(founders: int = 2) -> Valley:
    return Valley(founders=founders, run__rounds=2, pace__drain_s=5.0)


def prepared_with(dweller: Dweller, key: str) -> list[Value]:
    """What it was told to build, in order."""
    return [
        {setting.key: setting.value for setting in order.settings}[key]
        for order in dweller.ordered
        if isinstance(order, Prepare)
    ]


def test_a_model_that_cannot_be_built_leaves_the_run_to_the_next_peer() -> None:
    world = world_of()
    first = world.add("a")
    first.prepared = CANNOT_BUILD
    assert world.play(10.0)
    assert first.over == Over(2, CANNOT_BUILD.reason)
    assert not world.book.settled
    rest = [world.add(name, model="mlp") for name in "bc"]
    assert world.play(60.0)
    assert ends(rest) == dict.fromkeys("bc", (0, "finished"))
    assert world.book.options["model"] == "mlp"


def test_the_first_model_that_stands_settles_and_the_slower_peer_builds_that_one() -> None:
    world = world_of()
    slow = world.add("a")
    slow.prepare_s = 5.0
    quick = world.add("b", model="mlp")
    assert world.play(60.0)
    assert ends([slow, quick]) == dict.fromkeys("ab", (0, "finished"))
    assert world.book.options["model"] == "mlp"
    assert prepared_with(slow, "model") == ["lenet5", "mlp"]
    assert prepared_with(quick, "model") == ["mlp"]


def test_peers_that_agree_build_their_model_once() -> None:
    world = world_of(founders=3)
    three = world.settle("abc")
    assert world.play(60.0)
    assert [prepared_with(one, "model") for one in three] == [["lenet5"]] * 3


def test_a_file_that_the_run_names_without_its_digest_is_not_read(tmp_path: Path) -> None:
    own = tmp_path / "own.key"
    own.write_text("secret of mine\n")
    for is_settled in (False, True):
        world = Valley(founders=2)
        whole = complete({"data.input": "1x8x8", "data.classes": 2})
        world.book.options = Manifest({**whole, "run.topology": f"file:{own}"})
        world.book.settled = is_settled
        node = world.add("a")
        assert world.play(10.0)
        assert isinstance(node.over, Over)
        assert node.over.code == 2
        assert "names a file that other hosts do not have" in node.over.reason
        assert "secret" not in node.over.reason


def test_a_line_that_has_a_use_by_what_the_run_pins_is_no_mistake() -> None:
    world = Valley(founders=2, run__rounds=2, pace__drain_s=5.0, share__codec="topk")
    two = [world.add(name, share__topk=0.05) for name in "ab"]
    assert world.play(60.0)
    assert ends(two) == dict.fromkeys("ab", (0, "finished"))
    assert world.book.options["share.topk"] == 0.05


def test_a_line_that_has_no_use_is_refused_by_whoever_would_settle_it() -> None:
    world = world_of()
    first = world.add("a", share__topk=0.05)
    assert world.play(10.0)
    assert isinstance(first.over, Over)
    assert first.over.code == 2
    assert "share.topk = 0.05 has no use with share.codec = fp32" in first.over.reason
    assert not world.book.settled


def test_a_model_of_somebody_elses_runs_only_by_the_word_of_the_person_here() -> None:
    world = world_of()
    trusting = world.add("a", model="their.code:make")
    careful = world.add("b")
    assert world.play(5.0, until=lambda: careful.over is not None)
    assert careful.over is not None
    assert careful.over.code == 2
    assert "imports and runs code of that name here" in careful.over.reason
    assert "--option model=their.code:make" in careful.over.reason
    assert prepared_with(careful, "model") in ([], ["lenet5"])  # never the other's
    agreeing = world.add("c", model="their.code:make")
    assert world.play(60.0)
    assert ends([trusting, agreeing]) == dict.fromkeys("ac", (0, "finished"))


def test_a_node_whose_file_has_a_fault_after_the_last_round_is_refused_before_it_builds() -> None:
    late = read_faults([{"kind": "join", "at_round": 3, "peers": ["b"]}])
    world = world_of()  # of 2 rounds
    one = world.add("a", faults=late)
    assert world.play(5.0, until=lambda: one.over is not None)
    assert one.over == Over(
        2,
        "[[fault]] 1 (join) begins at round 3, and the run has 2 rounds: it would never happen - "
        "let it begin at round 2 or before, leave it out, or take run.rounds = 3 or more",
    )
    assert one.ordered == []
    assert not world.book.settled


def test_a_name_in_the_faults_that_nobody_has_is_told_once_when_the_run_begins() -> None:
    tables = [
        {"kind": "slow", "factor": 2.0, "at_round": 2, "peers": ["a", "bb"]},
        {"kind": "join", "at_s": 999.0, "peers": ["late"]},  # it is no member yet
    ]
    world = world_of()
    one, other = world.add("a", faults=read_faults(tables)), world.add("b")
    assert world.play(60.0)
    assert one.heard("faults-of-nobody") == [(None, "bb")]
    assert other.heard("faults-of-nobody") == []
