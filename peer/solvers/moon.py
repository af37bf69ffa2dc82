"""MOON: features are to look as under the start, not as under the peer's last model.

Li, He, Song, 2021, arXiv 2103.16257, Eq. 5. With z the projection of an example (two layers between
features and classifier, added to the model), z_start that of the received model and z_last that of
the peer's own model at the end of its last round,

    loss = CE + mu * CE of [cos(z, z_start), cos(z, z_last)] / temperature against the first

Gradients flow through z alone; the other two are taken in evaluation mode. Three passes a step.
Before its first round a peer's last model is the initial one. `mu = 0` is SGD.
"""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor

from peer.models.split import Mode, SplitModel
from peer.options.solvers import MoonOptions
from peer.solvers.base import Batch, Progress, Task
from peer.solvers.descent import Descent, Slope, descend, gradient, leaves, slope
from peer.solvers.projection import projected
from protocol.params import NOTHING, Params, State
from protocol.round import Start, Trained

__all__ = ["Moon"]

_PARAMS, _BUFFERS = "last", "last_buffers"  # of the state


@dataclass(frozen=True, slots=True)
class Moon:
    options: MoonOptions = field(default_factory=MoonOptions)

    def adapt(self, model: SplitModel) -> SplitModel:
        return projected(model, self.options.width)

    def init(self, start: Start) -> State:
        return {_PARAMS: start.params, _BUFFERS: start.buffers}

    def train(
        self, state: State, start: Start, task: Task, seed: int, progress: Progress
    ) -> tuple[Trained, State]:
        last = Start(state[_PARAMS], state.get(_BUFFERS, NOTHING))
        follow = self._contrasted(start, last) if self.options.mu else slope
        way = Descent.of(self.options.descent, follow)
        trained = descend(start, task, way, seed, progress)
        return trained, {_PARAMS: trained.params, _BUFFERS: trained.buffers}

    def _contrasted(self, near: Start, far: Start) -> Slope:
        def at(
            task: Task, params: Params, buffers: Params, batch: Batch
        ) -> tuple[Tensor, Params, Params]:
            with torch.no_grad():
                fixed = [
                    task.look(point.params, point.buffers, batch, Mode.EVALUATE).features
                    for point in (near, far)
                ]
            here = leaves(params)
            seen = task.look(here, buffers, batch)
            loss = F.cross_entropy(seen.logits, batch.targets)
            contrast = self._contrast(seen.features, *fixed)
            return loss.detach(), gradient(loss + self.options.mu * contrast, here), seen.buffers

        return at

    def _contrast(self, here: Tensor, near: Tensor, far: Tensor) -> Tensor:
        """Mean over the batch of three projections, (batch, width) each: ()."""
        closeness = [F.cosine_similarity(here, other, dim=1) for other in (near, far)]
        scores = torch.stack(closeness, dim=1) / self.options.temperature  # (batch, 2)
        return F.cross_entropy(scores, torch.zeros_like(scores[:, 0], dtype=torch.int64))
