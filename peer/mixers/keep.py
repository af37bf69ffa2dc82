"""What a peer keeps to itself: its classifier. The rest of the model is called the body."""

from dataclasses import replace

from peer.mixers.base import Head
from protocol.params import Params
from protocol.round import Trained

__all__ = ["body", "completed", "without_head"]


def body(params: Params, head: Head) -> Params:
    """All but the classifier's tensors."""
    return {name: tensor for name, tensor in params.items() if name not in head.names}


def without_head(trained: Trained, head: Head) -> Trained:
    """What leaves a peer that keeps its classifier."""
    return replace(trained, params=body(trained.params, head), personal=None)


def completed(mixed: Params, own: Params) -> Params:
    """The own tensors in their order, each replaced by the mixed one where there is one."""
    return {name: mixed.get(name, tensor) for name, tensor in own.items()}
