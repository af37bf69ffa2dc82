"""Every method by name, and how one is made of options: the torch half of `peer.options`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from peer.aggregators.afl import Afl
from peer.aggregators.base import Aggregator, Fitting
from peer.aggregators.config import ConFig
from peer.aggregators.craft import Craft
from peer.aggregators.fedavg import FedAvgServer
from peer.aggregators.fedavgm import FedAvgM
from peer.aggregators.feddyn import FedDynServer
from peer.aggregators.fedfv import FedFV
from peer.aggregators.fedlf import FedLF
from peer.aggregators.fednova import FedNova
from peer.aggregators.qfedavg import QFedAvg
from peer.aggregators.scaffold import ScaffoldServer
from peer.examples import Examples
from peer.mixers.base import Mixer
from peer.mixers.buffers import WithBuffers
from peer.mixers.fedavg import FedAvg
from peer.mixers.fedc2i import FedC2I
from peer.mixers.fedcalm import FedCalm
from peer.mixers.fedic import FedIC
from peer.mixers.fedproto import FedProto
from peer.mixers.fedrep import FedRep
from peer.mixers.local import Local
from peer.mixers.metropolis import Metropolis
from peer.mixers.relay import Relay
from peer.mixers.replicated import Replicated
from peer.models.split import SplitModel
from peer.options.fields import Value
from peer.options.methods import Need
from peer.options.recipe import Chosen, Recipe, read
from peer.probe import LocalProbe
from peer.solvers.base import Opening, Progress, Solver
from peer.solvers.ditto import Ditto
from peer.solvers.fedalign import FedAlign
from peer.solvers.fedconst import FedConst
from peer.solvers.feddyn import FedDyn
from peer.solvers.fedic import FedICSolver
from peer.solvers.fedproto import FedProtoSolver
from peer.solvers.fedprox import FedProx
from peer.solvers.fedrep import FedRepSolver
from peer.solvers.fedrod import FedRod
from peer.solvers.fedsam import FedSam
from peer.solvers.moon import Moon
from peer.solvers.scaffold import Scaffold
from peer.solvers.sgd import Sgd
from peer.task import LocalTask
from protocol.errors import ConfigError
from protocol.params import NOTHING, Params, State
from protocol.round import Start, Trained

__all__ = ["AGGREGATORS", "MIXERS", "SOLVERS", "Method", "make_method"]

# each is called with the options that peer.options.methods declares under the same name
MIXERS: Mapping[str, Callable[[Any], Mixer]] = {
    "fedavg": FedAvg,
    "fedc2i": FedC2I,
    "fedcalm": FedCalm,
    "fedic": FedIC,
    "fedproto": FedProto,
    "fedrep": FedRep,
    "fedrod": FedAvg,  # its personal classifier never is among the parameters
    "local": Local,
    "metropolis": Metropolis,
    "relay": Relay,
    "replicated": lambda _options: Replicated(FedAvgServer()),
}

SOLVERS: Mapping[str, Callable[[Any], Solver]] = {
    "ditto": Ditto,
    "fedalign": FedAlign,
    "fedconst": FedConst,
    "feddyn": FedDyn,
    "fedic": FedICSolver,
    "fedproto": FedProtoSolver,
    "fedprox": FedProx,
    "fedrep": FedRepSolver,
    "fedrod": FedRod,
    "fedsam": FedSam,
    "moon": Moon,
    "scaffold": Scaffold,
    "sgd": Sgd,
}

AGGREGATORS: Mapping[str, Callable[[Any], Aggregator]] = {
    "afl": Afl,
    "config": ConFig,
    "craft": Craft,
    "fedavg": FedAvgServer,
    "fedavgm": FedAvgM,
    "feddyn": FedDynServer,
    "fedfv": FedFV,
    "fedlf": FedLF,
    "fednova": FedNova,
    "qfedavg": QFedAvg,
    "scaffold": ScaffoldServer,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A mixer and a solver (and an aggregator, where one model is common to all), ready to run."""

    recipe: Recipe
    mixer: Mixer
    solver: Solver
    aggregator: Aggregator | None

    def fit(self, raw: SplitModel) -> tuple["Method", SplitModel]:
        """The model as the solver wants it, and the method as it knows that model."""
        model = self.solver.adapt(raw)
        aggregator = self.aggregator
        if not isinstance(aggregator, Fitting):
            return self, model
        fitted = aggregator.fitted(model.rows)
        mixer = self.mixer
        if isinstance(mixer, Replicated):
            mixer = replace(mixer, aggregator=fitted)
        return replace(self, aggregator=fitted, mixer=mixer), model

    def task(self, model: SplitModel, examples: Examples) -> LocalTask:
        """The learning problem; `model` is one that the solver has adapted.

        Raises:
            DataError: there is no example, or a label without a class.
        """
        return LocalTask(model, examples, self.recipe.train)

    def probe(self, task: LocalTask, buffers: Params, seed: int) -> LocalProbe:
        """The questions of one round; equal seeds ask the same."""
        return LocalProbe.draw(task, buffers, seed, self.recipe.mix.probe_batches)

    def opening(self, model: SplitModel) -> Trained:
        """The result of round 0, where nobody has trained yet; a relay has no example either."""
        return Trained(
            params=model.start.params,
            buffers=model.start.buffers,
            extras=self.solver.opening(model) if isinstance(self.solver, Opening) else NOTHING,
            num_examples=0,
            num_steps=0,
        )

    def train(
        self, state: State, start: Start, task: LocalTask, seed: int, progress: Progress
    ) -> tuple[Trained, State]:
        """The solver's result with the evidence that other parts of the method need."""
        trained, state = self.solver.train(state, start, task, seed, progress)
        if self.recipe.privacy is not None:  # how many of each class is no public knowledge
            trained = replace(trained, class_counts=())
        if Need.START_LOSS in self.recipe.needs:
            loss = task.full_loss(start.params, start.buffers)
            trained = replace(trained, start_loss=loss)
        return trained, state


# what the trainer calls, by slot: an installed method without one of them is refused
_VERBS: Mapping[str, tuple[str, ...]] = {
    "mixer": ("init", "share", "mix"),
    "solver": ("adapt", "init", "train"),
    "aggregator": ("init", "aggregate"),
}


def make_method(flat: Mapping[str, Value]) -> Method:
    """Make the method that flat options describe (see `peer.options.recipe`).

    Raises:
        ConfigError: an unknown method or option, a value that is not allowed, or an installed
            method that cannot be made.
    """
    recipe = read(flat)
    mixer: Mixer = _made("mixer", recipe.mixer, MIXERS)
    aggregator: Aggregator | None = None
    if recipe.aggregator.name != "none":
        aggregator = _made("aggregator", recipe.aggregator, AGGREGATORS)
    if isinstance(mixer, Replicated):
        mixer = replace(mixer, aggregator=aggregator or mixer.aggregator)
    else:
        mixer = WithBuffers(mixer, recipe.mix.buffers)
    return Method(
        recipe=recipe,
        mixer=mixer,
        solver=_made("solver", recipe.solver, SOLVERS),
        aggregator=aggregator,
    )


def _made(slot: str, chosen: Chosen, own: Mapping[str, Callable[[Any], Any]]) -> Any:  # noqa: ANN401
    """Make what fills a slot: one of Kinfolk's own, or what its package names."""
    if not chosen.entry.factory:
        return own[chosen.name](chosen.options)
    module, _, name = chosen.entry.factory.partition(":")
    where = f"{slot} {chosen.name!r} of {chosen.entry.package}"
    try:
        made = getattr(import_module(module), name)(chosen.options)
    except Exception as error:
        raise ConfigError(
            f"{where} cannot be made by {chosen.entry.factory}: {type(error).__name__}: {error}"
        ) from error
    for verb in _VERBS[slot]:
        if not callable(getattr(made, verb, None)):
            raise ConfigError(f"{where} has no {verb}()", hint=f"peer/{slot}s/base.py says what")
    return made
