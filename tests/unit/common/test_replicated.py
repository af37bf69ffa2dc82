"""One common model on every peer: who agrees, who adopts, and what a copy holds."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from peer.aggregators.fedavgm import FedAvgM
from peer.common import CommonModel
from peer.exchange import Origin, digest_of, write_contribution
from peer.mixers.replicated import Replicated, agreement, memory_of, pack_state, unpack_state
from peer.publishing import state_of, update_of
from peer.work import Adopt, Mix
from protocol.ids import PeerId
from protocol.round import Contribution, Mixed, Start, Trained
from protocol.wire.messages import Part

ROSTER = ("a", "b", "c")


def point(value: float) -> dict[str, torch.Tensor]:
    return {"w": torch.full((2,), value)}


def contribution(
    sender: str,
    value: float,
    *,
    base: bytes = b"x",
    memory: bytes = b"",
    num_examples: int = 1,
    round_no: int = 1,
) -> Contribution:
    return Contribution(
        sender=PeerId(sender),
        round_no=round_no,
        base=base,
        memory=memory,
        degree=2,
        trained=Trained(params=point(value), num_examples=num_examples, num_steps=1, nova_a=1.0),
    )


def common(value: float = 0.0, *, at_relay: bool = False) -> CommonModel:
    start = Start(point(value))
    return CommonModel(Replicated(FedAvgM()), start, frozenset(), at_relay=at_relay)


def of(model: CommonModel, sender: str, value: float) -> Contribution:
    """A contribution that was trained from what `model` holds."""
    base = digest_of(model.start.params)
    return contribution(sender, value, base=base, memory=model.memory)


def mix(*, relay: str = "", may_adopt: bool = True) -> Mix:
    return Mix(2, 2, (), ROSTER, relay, may_adopt)


def mixed(model: CommonModel, *contributions: Contribution, own: str = "a") -> Mixed:
    mine = next((c for c in contributions if c.sender == own), None)
    found = model.mix(mine, [c for c in contributions if c is not mine], mix())
    assert isinstance(found, Mixed)
    return found


def test_the_largest_group_is_right() -> None:
    found = agreement(
        [contribution(n, 0.0, base=b) for n, b in (("a", b"1"), ("b", b"2"), ("c", b"2"))]
    )
    assert [c.sender for c in found] == ["b", "c"]


def test_of_two_groups_that_are_as_large_the_one_with_the_lowest_name_is_right() -> None:
    bases = {"d": b"1", "c": b"2", "b": b"2", "a": b"1"}
    assert agreement([contribution(n, 0.0, base=b) for n, b in bases.items()])[0].sender == "a"


def test_equal_starts_with_different_memories_do_not_agree() -> None:
    memories = {"a": b"1", "b": b"2", "c": b"2"}
    found = agreement([contribution(n, 0.0, memory=m) for n, m in memories.items()])
    assert found[0].sender == "b"


def test_a_state_is_packed_and_unpacked() -> None:
    start, memory = Start(point(1.0), {"m": torch.ones(1)}), {"velocity": point(2.0)}
    back, kept = unpack_state(pack_state(start, memory))
    assert torch.equal(back.params["w"], start.params["w"])
    assert torch.equal(back.buffers["m"], start.buffers["m"])
    assert torch.equal(kept["velocity"]["w"], point(2.0)["w"])


def test_every_copy_comes_to_the_same_start() -> None:
    copies = {name: common() for name in "ab"}
    sent = [of(copies["a"], name, value) for name, value in (("a", 1.0), ("b", 3.0))]
    starts = [mixed(copies[name], *sent, own=name).start for name in "ab"]
    assert starts[0].params["w"].tolist() == starts[1].params["w"].tolist() == [2.0, 2.0]
    assert copies["a"].memory == copies["b"].memory != common().memory


def test_round_one_is_the_initial_model() -> None:
    found = common(5.0).mix(None, [], mix())
    assert isinstance(found, Mixed)
    assert found.start.params["w"].tolist() == [5.0, 5.0]


def test_who_is_not_of_the_largest_group_is_told_whose_state_to_adopt() -> None:
    astray, right = common(1.0), common(2.0)
    others = [of(right, "b", 3.0), of(right, "c", 4.0)]
    assert astray.mix(of(astray, "a", 0.0), others, mix()) == "b"


def test_who_may_not_adopt_goes_on_with_what_fits() -> None:
    astray, right = common(1.0), common(2.0)
    others = [of(right, "b", 3.0), of(right, "c", 4.0)]
    found = astray.mix(of(astray, "a", 0.0), others, mix(may_adopt=False))
    assert isinstance(found, Mixed)
    assert found.start.params["w"].tolist() == [0.0, 0.0]
    assert list(found.unused) == ["b", "c"]


def test_a_result_of_an_older_round_does_not_outvote_those_who_went_on() -> None:
    mine, right = common(1.0), common(2.0)
    old = replace(of(mine, "a", 0.0), round_no=0)  # as many as the others, and of a lower name
    assert mine.mix(old, [of(right, "b", 3.0)], mix()) == "b"


def test_where_nothing_fits_a_copy_holds_what_its_peer_goes_on_from() -> None:
    model = common(1.0)
    found = model.mix(contribution("a", 4.0, base=b"another"), [], mix(may_adopt=False))
    assert isinstance(found, Mixed)
    assert found.notes == {"local_round": 1.0}
    assert found.start.params["w"].tolist() == model.start.params["w"].tolist() == [4.0, 4.0]
    next_found = mixed(model, of(model, "a", 6.0))  # and the next round starts there
    assert next_found.start.params["w"].tolist() == [6.0, 6.0]


def adopted(tmp_path: Path, giver: CommonModel, taker: CommonModel, base: bytes) -> str:
    shared = Trained(params=point(0.0), num_examples=1, num_steps=1)
    origin = Origin(
        run=bytes(16),
        sender=PeerId("b"),
        part=Part.STATE,
        round_no=1,
        base=base,
        memory=giver.memory,
        degree=2,
    )
    ref = write_contribution(tmp_path / "state", origin, state_of(giver.state, shared))
    return taker.adopt(Adopt("b", ref))


def test_an_adopted_state_is_that_of_the_giver_bit_for_bit(tmp_path: Path) -> None:
    giver, taker = common(1.0), common(7.0)
    mixed(giver, of(giver, "a", 2.0), of(giver, "b", 4.0))  # it has a memory now
    assert adopted(tmp_path, giver, taker, digest_of(giver.start.params)) == ""
    assert torch.equal(taker.start.params["w"], giver.start.params["w"])
    assert digest_of(memory_of(taker.state)) == giver.memory
    sent = [of(giver, "b", 5.0), of(giver, "c", 6.0)]
    starts = [model.mix(None, sent, mix()) for model in (giver, taker)]
    assert all(isinstance(found, Mixed) for found in starts)
    assert torch.equal(giver.start.params["w"], taker.start.params["w"])


def test_a_state_that_is_not_what_its_manifest_names_is_refused(tmp_path: Path) -> None:
    giver, taker = common(1.0), common(7.0)
    assert "not the one" in adopted(tmp_path, giver, taker, bytes(32))
    assert taker.start.params["w"].tolist() == [7.0, 7.0]


def test_a_start_comes_from_the_relay_where_there_is_one() -> None:
    model = common()
    sent = contribution("relay", 9.0)
    found = model.mix(of(model, "a", 1.0), [sent], mix(relay="relay"))
    assert isinstance(found, Mixed)
    assert found.start.params["w"].tolist() == [9.0, 9.0]
    assert found.client_weight == {"relay": 1.0}


def test_what_is_held_does_not_change_with_the_receive_buffer_that_it_came_in() -> None:
    model = common()
    sent = contribution("relay", 9.0)
    model.mix(of(model, "a", 1.0), [sent], mix(relay="relay"))
    sent.trained.params["w"].zero_()  # the next pull into the same buffer
    assert model.start.params["w"].tolist() == [9.0, 9.0]


def test_without_the_relay_a_round_is_local() -> None:
    model = common()
    found = model.mix(of(model, "a", 1.0), [], mix(relay="relay"))
    assert isinstance(found, Mixed)
    assert found.start.params["w"].tolist() == [1.0, 1.0]
    assert found.notes == {"local_round": 1.0}


def test_a_relay_compares_starts_alone() -> None:
    relay = common(at_relay=True)
    sent = contribution("b", 4.0, base=digest_of(relay.start.params), memory=b"its own")
    assert mixed(relay, sent, own="").start.params["w"].tolist() == [4.0, 4.0]


def test_a_contribution_without_evidence_is_left_out_with_the_reason() -> None:
    model = common()
    empty = contribution(
        "b", 4.0, base=digest_of(model.start.params), memory=model.memory, num_examples=0
    )
    found = mixed(model, of(model, "a", 2.0), empty)
    assert found.start.params["w"].tolist() == [2.0, 2.0]
    assert "0 examples" in found.unused[PeerId("b")]


def test_an_update_is_start_minus_trained_of_what_is_shared() -> None:
    trained = Trained(params={**point(3.0), "own": torch.ones(1)}, num_examples=1, num_steps=1)
    start = Start({**point(5.0), "own": torch.zeros(1)})
    shared = Trained(params=point(3.0), num_examples=1, num_steps=1)
    update = update_of(start, trained, shared)
    assert {n: t.tolist() for n, t in update.params.items()} == {"w": [2.0, 2.0]}


@pytest.mark.parametrize("name", ["w", "v"])
def test_a_state_with_other_tensors_is_refused(tmp_path: Path, name: str) -> None:
    giver = CommonModel(Replicated(FedAvgM()), Start({name: torch.zeros(2)}), frozenset())
    fault = adopted(tmp_path, giver, common(), digest_of(giver.start.params))
    assert fault == ("" if name == "w" else "its start has other tensors than the model")
