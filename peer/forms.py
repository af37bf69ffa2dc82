"""The forms in which what a node shares travels: whole, as the run's codec writes it, as a step."""

from dataclasses import dataclass
from typing import Self

from peer.exchange import digest_of, sections_of
from peer.roles import Exchange
from peer.share import ShareOptions
from peer.work import Prepared
from protocol.codecs import Coder
from protocol.round import Start, Trained
from protocol.steps import Stepper
from protocol.tensors import spec_body
from protocol.wire.layout import schema_digest
from protocol.wire.messages import TensorSpec

__all__ = ["Forms"]


@dataclass(frozen=True, slots=True, eq=False)
class Forms:
    specs: tuple[TensorSpec, ...]  # of what is shared, with the digests of the initial model
    coder: Coder
    stepper: Stepper | None  # where the run's codec sends steps

    @classmethod
    def of(cls, initial: Trained | None, options: ShareOptions, *, steps: bool = True) -> Self:
        """Those of a run; the same at every node, or they do not understand each other.

        Args:
            initial: what is shared of the initial model; None shares nothing.
            options: of the run.
            steps: whether this node sends any.
        """
        specs = spec_body(sections_of(initial)) if initial is not None else ()
        return cls(specs, Coder(options.codec, specs), options.stepper(specs) if steps else None)

    def prepared(self, start: Start, exchange: Exchange, device: str) -> Prepared:
        """What the node is told, by a trainer that has no data."""
        steps = self.stepper.step_specs if self.stepper is not None else None
        return Prepared(
            schema=schema_digest(self.specs),
            coded=schema_digest(self.coder.coded_specs),
            stepped=schema_digest(steps) if steps is not None else b"",
            init=digest_of(start.params),
            shared=self.specs,
            exchange=exchange,
            num_parameters=sum(t.numel() for t in start.params.values()),
            num_examples=0,
            class_counts=(),
            device=device,
        )
