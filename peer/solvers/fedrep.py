"""FedRep, the local half: the classifier learns on the body as received, then the body on it.

Collins et al., 2021, arXiv 2102.07078, Algorithm 1: `head_epochs` passes move the classifier with
the body frozen, then `epochs` passes move the body with the classifier frozen. Running statistics
belong to the body, so the first passes leave them alone.
"""

from dataclasses import dataclass, field, replace

from torch import Tensor

from peer.models.split import SplitModel
from peer.options.solvers import FedRepSolverOptions
from peer.solvers.base import Batch, Progress, Task
from peer.solvers.descent import Descent, Slope, descend, gradient, leaves
from peer.solvers.optimiser import Momentum
from protocol.params import NO_STATE, Params, State
from protocol.round import Start, Trained

__all__ = ["FedRepSolver"]


@dataclass(frozen=True, slots=True)
class FedRepSolver:
    options: FedRepSolverOptions = field(default_factory=FedRepSolverOptions)

    def adapt(self, model: SplitModel) -> SplitModel:
        return model

    def init(self, start: Start) -> State:
        return NO_STATE

    def train(
        self, state: State, start: Start, task: Task, seed: int, progress: Progress
    ) -> tuple[Trained, State]:
        optimiser, passes = Momentum(self.options.descent), self.options.descent.epochs
        names = task.model.head.names
        head = {name: start.params[name] for name in names}
        body = {name: t for name, t in start.params.items() if name not in names}
        before = self.options.head_epochs * task.num_batches
        planned = before + passes * task.num_batches

        first = descend(
            Start(head, start.buffers),
            task,
            Descent(
                optimiser=optimiser,
                epochs=self.options.head_epochs,
                follow=_beside(body, moves_buffers=False),
            ),
            seed,
            lambda done, _: progress(done, planned),
        )
        second = descend(
            Start(body, start.buffers),
            task,
            Descent(
                optimiser=optimiser,
                epochs=passes,
                follow=_beside(first.params, moves_buffers=True),
            ),
            seed + self.options.head_epochs,
            lambda done, _: progress(before + done, planned),
        )
        both = {**first.params, **second.params}
        steps = first.num_steps + second.num_steps
        losses = first.train_loss * first.num_steps + second.train_loss * second.num_steps
        trained = replace(  # second: what it says of its steps is said of what leaves the peer
            second,
            params={name: both[name] for name in start.params},
            num_steps=steps,
            train_loss=losses / steps,
        )
        return trained, state


def _beside(frozen: Params, *, moves_buffers: bool) -> Slope:
    """The plain gradient of a part of the model, beside the rest of it."""

    def at(
        task: Task, params: Params, buffers: Params, batch: Batch
    ) -> tuple[Tensor, Params, Params]:
        here = leaves(params)
        loss, moved = task.loss({**frozen, **here}, buffers, batch)
        return loss.detach(), gradient(loss, here), moved if moves_buffers else buffers

    return at
