"""How what leaves a peer is written, as options. Torch-free."""

from dataclasses import dataclass

from peer.options.fields import check, choice

__all__ = ["ShareOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareOptions:
    """The same for all peers of a run: a common model needs one value of each result."""

    codec: str = choice("fp32", "fp32 | bf16 | int8", "how results are written for the wire")

    def __post_init__(self) -> None:
        check(self)
