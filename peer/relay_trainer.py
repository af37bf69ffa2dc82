"""What a relay's trainer process does: aggregate and publish. It has no data to train on.

Takes the same commands as a peer's trainer. Peers with one common model are aggregated from the
start that they share; of peers that start from their own mixes (preset kinfolk) the relay takes
each one's update, start minus trained, and steps a model of its own from the common initial one.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import assert_never

import torch

from peer.common import CommonModel
from peer.device import pick_device
from peer.evidence import mix_done
from peer.exchange import Origin, digest_of, read_contribution
from peer.forms import Forms
from peer.inspection import Inspector
from peer.memory import Memory, read_memory
from peer.methods import Method, make_method
from peer.mixers.base import Head
from peer.mixers.replicated import Replicated
from peer.models.registry import build_model
from peer.publishing import Shelving, remembered
from peer.roles import Exchange
from peer.seeding import EVERYONE, stream_seed
from peer.settings import Settings
from peer.solvers.base import Progress
from peer.work import (
    Adopt,
    Adopted,
    Alone,
    Command,
    Evaluate,
    Inspect,
    Inspected,
    Mix,
    MixDone,
    Prepare,
    Prepared,
    Publish,
    Published,
    Quit,
    Reply,
    Train,
)
from protocol.codecs import Coder
from protocol.errors import ConfigError, LocalProtocolError
from protocol.ids import PeerId
from protocol.params import sub
from protocol.round import Contribution, Mixed, Start, Trained
from protocol.wire.fields import as_text

__all__ = ["RelayTrainer"]


@dataclass(slots=True, eq=False, kw_only=True)
class _Desk:
    """What a relay carries from round to round."""

    relay: PeerId
    run: bytes
    device: torch.device
    exchange: Exchange
    method: Method
    head: Head
    common: CommonModel
    start: Start  # its newest model
    opening: Trained  # what a peer shows before any training
    inspector: Inspector
    coder: Coder  # of what peers send; a relay's model is where all begin, so it is exact
    directory: Path
    shelving: Shelving
    num_examples: int = 0  # behind the newest model
    base: bytes = b""  # digest of the model before it

    def base_here(self) -> bytes:
        return digest_of(self.start.params)


class RelayTrainer:
    def __init__(self) -> None:
        self._desk: _Desk | None = None

    def carry_out(self, command: Command, progress: Progress) -> Reply | None:
        """Do as the node says; None for the order to quit.

        Raises:
            KinfolkError: as the command's own method.
            OSError: the disk is full.
        """
        match command:
            case Prepare():
                return self.prepare(command)
            case Inspect():
                return self.inspect(command)
            case Mix():
                return self.mix(command)
            case Adopt():
                fault = self._ready().common.adopt(command)
                return Adopted(command.neighbour, as_text(fault))
            case Publish():
                return self.publish(command)
            case Train() | Evaluate() | Alone():
                raise LocalProtocolError(f"a relay has no data for {type(command).__name__}")
            case Quit():
                return None
            case _:
                assert_never(command)

    def prepare(self, command: Prepare) -> Prepared:
        """Build the model that the run's manifest names; it is the same as every peer's.

        Raises:
            OperatorError: the method has nothing for a relay to do, or the model cannot be built.
        """
        settings = Settings.read({s.key: s.value for s in command.settings})
        device, told = pick_device(command.device)
        seed = stream_seed(settings.run.seed, EVERYONE, "init", 0)
        norm = settings.model_options.norm
        raw = build_model(
            settings.model, settings.input_shape, settings.num_classes, norm, seed
        ).to(device)
        method, model = make_method(settings.recipe.flat()).fit(raw)
        if method.aggregator is None:
            raise ConfigError(
                f"method {settings.method} of this run has no aggregator for a relay to run",
                hint="start the run with another method, or with --option aggregator=craft",
            )
        start, opening = model.start, method.opening(model)
        is_common = settings.exchange is not Exchange.NEIGHBOURS
        exchange = Exchange.RESULTS if is_common else Exchange.UPDATES
        shared = method.mixer.share(opening, model.head)
        forms = Forms.of(shared, settings.share, steps=exchange is Exchange.RESULTS)
        self._desk = _Desk(
            relay=PeerId(command.peer),
            run=command.run,
            device=device,
            exchange=exchange,
            method=method,
            head=model.head,
            opening=opening,
            common=CommonModel(
                Replicated(method.aggregator),
                start,
                settings.recipe.needs,
                at_relay=True,
            ),
            start=start,
            inspector=Inspector(
                settings.admit, lambda: self._ready().start.params, coder=forms.coder
            ),
            coder=forms.coder,
            directory=Path(command.directory),
            shelving=Shelving(Path(command.directory)),
        )
        if command.memory:
            _go_on(
                self._desk, settings, read_memory(Path(command.directory), command.memory, device)
            )
        return forms.prepared(start, exchange, told.replace("training", "aggregating"))

    def inspect(self, command: Inspect) -> Inspected:
        """Look at a peer's parameters, or its update, before they may be aggregated."""
        desk = self._ready()
        return desk.inspector.inspect(command, updates=desk.exchange is Exchange.UPDATES)

    def mix(self, command: Mix) -> MixDone:
        """Aggregate what was collected of this round."""
        began_s = time.perf_counter()
        desk = self._ready()
        contributions = [
            read_contribution(part.snapshot, device=desk.device, coder=desk.coder)
            for part in command.inputs
        ]
        base = desk.base_here()
        if desk.exchange is Exchange.UPDATES:
            contributions = [_from_here(c, desk.start, base) for c in contributions]
        mixed = desk.common.mix(None, contributions, command)
        done = mix_done(command.round_no, mixed, time.perf_counter() - began_s)
        if not isinstance(mixed, Mixed):
            return done
        desk.base = base
        desk.start = mixed.start
        desk.num_examples = _examples(contributions, mixed)
        return done

    def publish(self, command: Publish) -> Published:
        """Write the newest model as a snapshot like any peer's, and what is remembered.

        Raises:
            OSError: there is no room for the snapshot, neither on disk nor in memory.
        """
        desk = self._ready()
        origin = Origin(
            run=desk.run, sender=desk.relay, round_no=command.round_no, base=desk.base, degree=0
        )
        newest = replace(
            desk.opening,
            params=desk.start.params,
            buffers=desk.start.buffers,
            extras=desk.start.extras or desk.opening.extras,  # one layout, whoever sends
            num_examples=desk.num_examples,
            num_steps=1,
        )
        shared = desk.method.mixer.share(newest, desk.head)
        published = desk.shelving.publish(origin, shared, kept=command.kept)
        memory = Memory(
            round_no=command.round_no,
            trained=replace(newest, extras=desk.start.extras),
            states={"common": desk.common.state},
            norms=desk.inspector.norms,
            base=desk.base,
        )
        return remembered(desk.directory, published, memory, shared)

    def _ready(self) -> _Desk:
        if self._desk is None:
            raise LocalProtocolError("the relay was given work before Prepare")
        return self._desk


def _go_on(desk: _Desk, settings: Settings, memory: Memory) -> None:
    """Be where an earlier process was when it had published a round."""
    trained = memory.trained
    desk.common.restore(memory.states["common"])
    desk.start = Start(trained.params, trained.buffers, trained.extras)
    desk.base, desk.num_examples = memory.base, trained.num_examples
    desk.inspector = Inspector(
        settings.admit, lambda: desk.start.params, memory.norms, coder=desk.coder
    )
    desk.shelving = Shelving(desk.directory, newest=memory.round_no)


def _from_here(contribution: Contribution, start: Start, base: bytes) -> Contribution:
    """An update, whatever it started from, as if it had started here."""
    update = contribution.trained
    # In float64: a small step from large parameters would drown in float32.
    moved = {n: t.double() for n, t in start.params.items() if n in update.params}
    params = {**start.params, **sub(moved, {n: t.double() for n, t in update.params.items()})}
    buffers = {**start.buffers, **update.buffers}  # layers that stay local send none
    return replace(contribution, base=base, trained=replace(update, params=params, buffers=buffers))


def _examples(contributions: Sequence[Contribution], mixed: Mixed) -> int:
    return sum(c.trained.num_examples for c in contributions if c.sender in mixed.client_weight)
