"""Signals while nothing is at rest: torch is loading, or a long step is under way."""

from pathlib import Path
from signal import SIG_IGN, SIGHUP, SIGINT, SIGTERM, getsignal

from peer.ledger import read_events
from tests.integration.peers.village import LOOPBACK, village


def test_signals_end_a_peer_whatever_its_trainer_does(tmp_path: Path) -> None:
    with village(tmp_path) as place:
        place.deal("ab")
        user = place.user()
        user.coordinator(
            *LOOPBACK, "--run=day", founders=1, model="mlp", solver__epochs=100_000
        )  # a round of minutes

        loading = user.peer("a")
        loading.wait_for_event("progress", phase="prepare")
        # Under nohup a peer inherits that it is not to hear of hang-ups, and keeps to it.
        hang_up = SIGTERM if getsignal(SIGHUP) is SIG_IGN else SIGHUP
        loading.signal_group(hang_up)
        assert loading.end() == 0, loading.err
        assert f"stopped by {hang_up.name}" in loading.err

        training = user.peer("b")
        training.wait_for_event("progress", phase="train")
        trainer = training.trainer()
        training.signal_group(SIGINT)
        training.signal_group(SIGINT)  # the second: do not even wait for the step
        assert training.end() == 0, training.err
        assert not trainer.is_running()
        finished = read_events(user.cwd / "runs" / "day" / "b" / "events.jsonl")[-1]
        assert (finished.name, finished.fields["rounds_finished"]) == ("finished", 0)
        assert loading.errors() + training.errors() == []
