"""How many rounds an aggregator has seen, as a part of its state."""

import torch

from protocol.params import Params, State

__all__ = ["SECTION", "rounds", "ticked"]

SECTION = "clock"  # of the state


def rounds(state: State) -> int:
    """Rounds aggregated so far: 0 in the first."""
    return int(state[SECTION]["rounds"])


def ticked(rounds: int) -> Params:
    """The section of the state that says so many rounds."""
    return {"rounds": torch.tensor(rounds)}
