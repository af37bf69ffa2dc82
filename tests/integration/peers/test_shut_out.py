"""A member floods a real peer: it is refused there, also by the process that goes on afterwards."""

import re
from pathlib import Path
from signal import SIGKILL

import pytest

from peer.layout import refusals_file
from protocol.transport.keys import load_identity
from tests.integration.peers.village import LOOPBACK, Process, village
from tests.integration.transport.flood import flooding

ROUNDS = 40
PACE = {"pace__grace_s": 0.1, "pace__silence_s": 4, "pace__drain_s": 5}


def reasons(peer: Process) -> list[str]:
    return [line["reason"] for line in peer.happenings("shut-out") if line["peer"] == "c"]


@pytest.mark.long
def test_a_member_that_floods_a_peer_stays_out_over_its_restart(tmp_path: Path) -> None:
    with village(tmp_path) as place:
        place.deal("abc")
        user = place.user()
        user.coordinator(*LOOPBACK, founders=3, model="mlp", run__rounds=ROUNDS, **PACE)
        a, b, c = (user.peer(name) for name in "abc")
        a.wait_for_round(1)
        keys = {name: load_identity(user.home / "keys" / f"{name}.key") for name in "ac"}
        where = re.search(r"reachable at tcp://127\.0\.0\.1:(\d+)", a.err)
        assert where is not None
        with flooding(int(where[1]), server_key=keys["a"].curve_public, keys=keys["c"]):
            a.wait_for_event("shut-out", peer="c")
        assert re.fullmatch(r"\d+ MiB of a message .*; after a restart too", reasons(a)[0])
        a.signal(SIGKILL)
        assert a.end() == -SIGKILL
        again = user.peer("a", *LOOPBACK, "--resume")
        assert again.end() == 0, again.err
        (told,) = reasons(again)
        (kept,) = (user.cwd / "runs").glob("*/a")
        assert re.match(r"since 2\d{3}-\d\d-\d\d \d\d:\d\d: \d+ MiB of a message ", told)
        assert told.endswith(f"to take it again, stop this peer and remove {refusals_file(kept)}")
        assert "c is refused here: since " in again.err
        for peer in (b, c):
            assert peer.end() == 0, peer.err
        assert max(again.rounds()) == ROUNDS
