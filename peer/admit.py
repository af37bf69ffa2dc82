"""Which checks a snapshot passes before it is mixed, as options. Torch-free."""

from dataclasses import dataclass

from peer.options.fields import check, flag

__all__ = ["AdmitOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmitOptions:
    """Layout and digests are always checked: without them there is nothing to mix."""

    finite: bool = flag("true", "no NaN and no infinity")
    norm: bool = flag("true", "a norm that is not absurd")

    def __post_init__(self) -> None:
        check(self)
