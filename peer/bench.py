"""A peer's workbench: what stays the same from round to round. Data, model, device, method.

Also the one place that knows how a personal model is written, so that it can be rebuilt from its
file alone.
"""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from peer.attacks import flip_labels, poison
from peer.checkpoint import write_model
from peer.data import Shard, Split, load_shard
from peer.data.holdout import with_validation
from peer.device import pick_device
from peer.evaluate import Outcomes, outcomes
from peer.examples import Examples
from peer.methods import Method
from peer.models.pool import ModelPool
from peer.models.split import SplitModel
from peer.options.attack import LABELFLIP, Attack
from peer.options.fields import build, values
from peer.options.methods import DescentOptions, SgdOptions
from peer.privacy import check_private, epsilon
from peer.probe import LocalProbe
from peer.seeding import EVERYONE, seeded, stream_seed
from peer.settings import Settings
from peer.solvers.base import Solver
from peer.solvers.sgd import Sgd
from peer.task import LocalTask
from peer.work import Prepare, Score
from protocol.errors import DataError
from protocol.ids import PeerId
from protocol.params import Params
from protocol.round import Start, Trained

__all__ = ["MODEL_FILE", "Bench", "Examined"]

MODEL_FILE = "model.safetensors"
_NO_SCORE = -1.0
_HUGE_NATS = 1e300


@dataclass(frozen=True, slots=True, eq=False)
class Examined:
    """What a point makes of the own validation and test split; None where that split is empty."""

    val: Outcomes | None
    test: Outcomes | None

    @property
    def score(self) -> Score:
        return Score(*_figures(self.val), *_figures(self.test))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Bench:
    peer: PeerId
    run: bytes
    directory: Path
    settings: Settings
    shard: Shard
    model: SplitModel  # as the run's solver wants it
    raw: SplitModel  # before the solver adapted it
    method: Method
    task: LocalTask
    val: Examples
    test: Examples
    device: torch.device
    told: str  # one line about the device, for the person
    attack: Attack | None  # how this peer harms the others
    num_held_out: int  # validation samples that the shard's training split gave up

    @classmethod
    def set_up(cls, command: Prepare, pool: ModelPool) -> "Bench":
        """Load the data; build the model, or take it from the pool.

        Raises:
            OperatorError: the shard, the model, the device or a setting cannot be used.
        """
        settings = Settings.read({s.key: s.value for s in command.settings})
        device, told = pick_device(command.device)
        whole = load_shard(Path(command.data))
        _check_fits(whole, settings)
        draw = stream_seed(settings.run.seed, PeerId(command.peer), "holdout", 0)
        shard = with_validation(whole, settings.recipe.train.holdout, draw)
        seed = stream_seed(settings.run.seed, EVERYONE, "init", 0)
        raw = pool.raw(
            settings,
            settings.input_shape or shard.input_shape,
            settings.num_classes or len(shard.classes),
            seed=seed,
            device=device,
        )
        method, model = pool.fitted(settings, raw)
        attack = Attack.parse(command.attack) if command.attack else None
        train = _examples(shard.train, device)
        if attack is not None and attack.name == LABELFLIP:
            seed = stream_seed(settings.run.seed, PeerId(command.peer), "attack", 0)
            train = flip_labels(train, model.num_classes, attack.strength, seed)
        task = method.task(model, train)
        if (privacy := settings.recipe.privacy) is not None:
            check_private(privacy, model, task)
        return cls(
            peer=PeerId(command.peer),
            run=command.run,
            directory=Path(command.directory),
            settings=settings,
            shard=shard,
            model=model,
            raw=raw,
            method=method,
            task=task,
            val=_examples(shard.val, device),
            test=_examples(shard.test, device),
            device=device,
            told=told,
            attack=attack,
            num_held_out=len(whole.train) - len(shard.train),
        )

    @contextmanager
    def seeded(self, purpose: str, round_no: int) -> Iterator[int]:
        with seeded(self.settings.run.seed, self.peer, purpose, round_no) as seed:
            yield seed

    @property
    def has_twin(self) -> bool:
        """Whether a model is trained alone beside the one that is shared."""
        options = self.settings.recipe.serve
        return options.never_worse and options.twin and len(self.val) > 0

    def initial(self) -> Start:
        """Where every peer begins."""
        return self.model.start

    def alone_solver(self, which: str) -> Solver:
        """The solver of a model that is trained alone: plain "sgd", or the "same" as the run's."""
        if which == "same":
            return self.method.solver
        options = values(self.settings.recipe.solver.options)
        return Sgd(SgdOptions(descent=build(DescentOptions, options)))

    def shared(self, trained: Trained, start: Start, round_no: int) -> Trained:
        """What leaves this peer in place of an honest result; the result itself if it is honest."""
        if self.attack is None:
            return trained
        seed = stream_seed(self.settings.run.seed, self.peer, "attack", round_no)
        return poison(trained, start, self.attack, seed)

    def epsilon(self, num_steps: int) -> float:
        """What so many private steps have told of one example; -1 where training is not private."""
        privacy = self.settings.recipe.privacy
        if privacy is None:
            return -1.0
        return epsilon(privacy, num_batches=self.task.num_batches, num_steps=num_steps)

    def probe(self, buffers: Params, seed: int) -> LocalProbe:
        return self.method.probe(self.task, buffers, seed)

    def score(self, params: Params, buffers: Params, model: SplitModel | None = None) -> Score:
        """Accuracy and loss on the own validation and test splits, by `model` or the run's own."""
        return self.examine(params, buffers, model).score

    def examine(self, params: Params, buffers: Params, model: SplitModel | None = None) -> Examined:
        """Ask `model`, or the run's own, about each example of the two splits."""
        model = model or self.model
        return Examined(
            outcomes(model, params, buffers, self.val) if len(self.val) else None,
            outcomes(model, params, buffers, self.test) if len(self.test) else None,
        )

    def validate(self, params: Params, buffers: Params) -> Outcomes | None:
        """Ask about each example of the validation split; None where there is none."""
        return outcomes(self.model, params, buffers, self.val) if len(self.val) else None

    def save_model(self, params: Params, buffers: Params, round_no: int, served: str) -> None:
        """Write the personal model with all that is needed to use it elsewhere.

        Raises:
            OSError: the disk is full.
        """
        card = {
            "peer": self.peer,
            "round": round_no,
            "served": served,
            "model": self.settings.model,
            "norm": self.settings.model_options.norm,
            "input_shape": list(self.model.input_shape),
            "classes": list(self.shard.classes),
            "domain": self.shard.domain,
            "transform": asdict(self.shard.card.transform),
            "options": dict(self.settings.flat),
        }
        write_model(
            self.directory / MODEL_FILE,
            {**params, **buffers},
            {"format": "pt", "kinfolk": json.dumps(card)},
        )


def _check_fits(shard: Shard, settings: Settings) -> None:
    """The node has compared these already; a shard that was exchanged since is told here.

    Raises:
        DataError: shape or number of classes are not those of the run.
    """
    if settings.input_shape and shard.input_shape != settings.input_shape:
        raise DataError(
            f"{shard.name} has inputs {shard.input_shape}, the run {settings.input_shape}"
        )
    if settings.num_classes and len(shard.classes) != settings.num_classes:
        raise DataError(
            f"{shard.name} has {len(shard.classes)} classes, the run {settings.num_classes}"
        )


def _examples(split: Split, device: torch.device) -> Examples:
    return Examples(torch.from_numpy(split.x), torch.from_numpy(split.y)).to(device)


def _figures(found: Outcomes | None) -> tuple[float, float]:
    """Accuracy and mean loss."""
    if found is None:
        return _NO_SCORE, _NO_SCORE
    return found.correct.double().mean().item(), _number(found.losses.mean().item())


def _number(value: float) -> float:
    """A loss for the record; one that is not finite is told as a very large one."""
    return value if math.isfinite(value) else _HUGE_NATS
