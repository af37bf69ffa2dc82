"""A trainer that does nothing for many leases: its node keeps the lease, and is taken for alive."""

from pathlib import Path
from signal import SIGCONT, SIGSTOP

import psutil
import pytest

from tests.integration.peers.village import LOOPBACK, village

PACE = {"pace__grace_s": 0.1, "pace__drain_s": 5}


@pytest.mark.long
def test_a_frozen_trainer_does_not_cost_the_lease(tmp_path: Path) -> None:
    with village(tmp_path) as place:
        place.deal("ab")
        user = place.user()
        coordinator = user.coordinator(
            *LOOPBACK, "--lease=3", founders=2, model="mlp", run__rounds=1_000_000, **PACE
        )
        a, b = user.peer("a"), user.peer("b")
        for peer in (a, b):
            peer.wait_for_round(2)
        (trainer,) = psutil.Process(b.pid).children()
        trainer.send_signal(SIGSTOP)
        told = len(coordinator.err)
        # Four leases, by the clock of a member that is there.
        began = a.happenings("round")[-1]["at_s"]
        a.wait_for("four leases", lambda: a.happenings("round")[-1]["at_s"] > began + 12.0)
        trainer.send_signal(SIGCONT)
        last = max(b.rounds())
        b.wait_for_round(last + 1)
        assert "lost" not in coordinator.err[told:]
