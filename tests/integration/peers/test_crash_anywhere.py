"""Real peers, one of them killed at a random moment and started again with --resume."""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from signal import SIGKILL
from time import monotonic

import pytest

from peer.ledger import read_events
from peer.summary import read_summary
from peer.verify import verify
from protocol.steps import STEPS
from tests.integration.peers.village import LOOPBACK, Process, User, Village, village

ROUNDS = 25
NAMES = "abcdef"
PACE = {"pace__quorum": 1.0, "pace__bound_s": 120.0, "pace__drain_s": 60}
LATEST_S = 0.5  # after a round was seen, until the kill: longer than a round takes


def begin(
    place: Village, founders: str = NAMES, *, codec: str = "fp32"
) -> tuple[User, dict[str, Process]]:
    place.deal(founders)
    user = place.user()
    user.coordinator(
        *("--run=crash", *LOOPBACK),
        founders=len(founders),
        model="mlp",
        run__rounds=ROUNDS,
        run__seed=5,
        share__codec=codec,
        **PACE,
    )
    return user, {name: user.peer(name) for name in founders}


def root_of(user: User) -> Path:
    return user.cwd / "runs" / "crash"


@pytest.fixture(scope="module")
def codec(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory, codec: str) -> Iterator[Path]:
    """The run directory of a run without an accident."""
    with village(tmp_path_factory.mktemp("unbroken")) as place:
        user, peers = begin(place, codec=codec)
        for peer in peers.values():
            assert peer.end() == 0, peer.err
        yield root_of(user)


def recorded(user: User, name: str) -> list[int]:
    """Rounds that the victim has told of, in the order in which it did."""
    events = read_events(root_of(user) / name / "events.jsonl")
    return [int(str(e.fields["round"])) for e in events if e.name == "round"]


def kill(victim: Process, chance: Random) -> bool:
    """End its node, or its trainer alone; True when the others have heard no word of it.

    A node whose trainer is killed says goodbye: the others do not wait for it until it is back.
    """
    until_s = monotonic() + chance.uniform(0.0, LATEST_S)
    victim.wait_for("the moment", lambda: monotonic() >= until_s)
    if chance.random() < 0.3:
        victim.trainer().kill()
        assert victim.end() == 1, victim.err
        return False
    victim.signal(SIGKILL)
    assert victim.end() == -SIGKILL
    return True


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("codec", "seed"),
    [
        *(("fp32", seed) for seed in range(20)),
        *((codec, seed) for codec in sorted(STEPS) for seed in range(4)),
    ],
    indirect=["codec"],
    scope="module",
)
def test_a_peer_killed_at_a_random_moment_goes_on(
    tmp_path: Path, unbroken: Path, codec: str, seed: int
) -> None:
    chance = Random(seed)
    with village(tmp_path) as place:
        user, peers = begin(place, codec=codec)
        name = chance.choice(NAMES)
        peers[name].wait_for_round(chance.randrange(1, ROUNDS - 5))
        is_silent = kill(peers[name], chance)
        before = recorded(user, name)
        peers[name] = user.peer(name, *LOOPBACK, "--resume")
        for peer in peers.values():
            assert peer.end() == 0, peer.err
        after = recorded(user, name)
        assert after[: len(before)] == before  # none lost
        assert len(after) == len(set(after))  # none twice
        summary = read_summary(root_of(user) / name / "summary.json")
        assert summary.rounds_finished == len(after)
        if is_silent:
            verdict = verify(unbroken, root_of(user))
            assert verdict.first is None, str(verdict.first)
            assert verdict.snapshots == ROUNDS * len(NAMES)
            assert after == list(range(1, ROUNDS + 1))
