"""Running statistics, the same way for every mixer: averaged with its weights, or personal.

`average`: floating-point buffers are averaged with the mixer's weights of whole models, of integer
ones the largest stands. `local`: layers with running statistics never leave the peer, scale and
shift included (FedBN, Li et al., 2021, arXiv 2102.07623). Without such layers both are the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor

from peer.mixers.base import Head, Mixer, Probe
from protocol.params import NOTHING, Params, State, weighted_mean
from protocol.round import Contribution, Mixed, Start, Trained

__all__ = ["WithBuffers"]


@dataclass(frozen=True, slots=True)
class WithBuffers:
    inner: Mixer
    policy: Literal["average", "local"]

    def init(self, start: Start) -> State:
        return self.inner.init(start)

    def share(self, trained: Trained, head: Head) -> Trained | None:
        return self.inner.share(trained if self.policy == "average" else _common(trained), head)

    def mix(
        self, state: State, own: Contribution, others: Sequence[Contribution], probe: Probe
    ) -> tuple[Mixed, State]:
        if self.policy == "local":
            return self._mix_common(state, own, others, probe)
        mixed, state = self.inner.mix(state, own, others, probe)
        everyone = sorted([own, *others], key=lambda contribution: contribution.sender)
        buffers = weighted_mean(
            (c.trained.buffers, mixed.client_weight.get(c.sender, 0.0)) for c in everyone
        )
        return replace(mixed, start=replace(mixed.start, buffers=buffers)), state

    def _mix_common(
        self, state: State, own: Contribution, others: Sequence[Contribution], probe: Probe
    ) -> tuple[Mixed, State]:
        common = [replace(c, trained=_common(c.trained)) for c in (own, *others)]
        personal = _personal(own.trained)
        mixed, state = self.inner.mix(state, common[0], common[1:], _Completed(probe, personal))
        params = {n: mixed.start.params.get(n, t) for n, t in own.trained.params.items()}
        start = replace(mixed.start, params=params, buffers=own.trained.buffers)
        return replace(mixed, start=start), state


def _personal(trained: Trained) -> Params:
    """Scale and shift of the layers that have running statistics."""
    layers = {name.rpartition(".")[0] for name in trained.buffers if name.endswith("running_mean")}
    return {n: t for n, t in trained.params.items() if n.rpartition(".")[0] in layers}


def _common(trained: Trained) -> Trained:
    personal = _personal(trained)
    params = {name: t for name, t in trained.params.items() if name not in personal}
    return replace(trained, params=params, buffers=NOTHING)


@dataclass(frozen=True, slots=True)
class _Completed:
    """A probe that is asked about the common part, and answers for the whole model."""

    inner: Probe
    personal: Params

    @property
    def head(self) -> Head:
        return self.inner.head

    @property
    def num_batches(self) -> int:
        return self.inner.num_batches

    def targets(self, batch: int = 0) -> Tensor:
        return self.inner.targets(batch)

    def loss(self, params: Params, batch: int = 0) -> float:
        return self.inner.loss({**params, **self.personal}, batch)

    def features(self, params: Params, batch: int = 0) -> Tensor:
        return self.inner.features({**params, **self.personal}, batch)
