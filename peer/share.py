"""How what leaves a peer is written, as options. Torch-free."""

from collections.abc import Sequence
from dataclasses import dataclass

from peer.options.fields import Only, check, choice, number
from protocol.steps import STEPS, Stepper
from protocol.wire.messages import TensorSpec

__all__ = ["ShareOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareOptions:
    """The same for all peers of a run: a common model needs one value of each result."""

    codec: str = choice(
        "fp32", "fp32 | bf16 | int8 | delta | topk", "how results are written for the wire"
    )
    topk: float = number(
        0.1,
        "(0, 0.5]",
        "share of the numbers of each tensor that travel in a round",
        only=Only("codec", "topk"),
    )

    def __post_init__(self) -> None:
        check(self)

    def stepper(self, specs: Sequence[TensorSpec]) -> Stepper | None:
        """Where the codec sends steps: how they are written, of tensors like these."""
        return Stepper(self.codec, self.topk, specs) if self.codec in STEPS else None
