"""How a peer attacks, as a person types it: `signflip`, or `signflip:2.5`. Torch-free."""

from collections.abc import Mapping
from dataclasses import dataclass

from peer.options.fields import Rule
from protocol.errors import ConfigError
from protocol.suggest import of_all

__all__ = ["ATTACKS", "LABELFLIP", "NOISE", "SCALE", "SIGNFLIP", "Attack"]

LABELFLIP, NOISE, SCALE, SIGNFLIP = "labelflip", "noise", "scale", "signflip"

# name -> the strength: its default, what is allowed, and what it means
ATTACKS: Mapping[str, Rule] = {
    LABELFLIP: Rule(1.0, "(0, 1]", "share of the training labels y that become C - 1 - y"),
    NOISE: Rule(1.0, "(0, 1000000]", "deviation of the noise, in lengths of each tensor (RMS)"),
    SCALE: Rule(10.0, "(0, 1000000]", "what the step of the round is multiplied by"),
    SIGNFLIP: Rule(1.0, "(0, 1000000]", "what the reversed step is multiplied by"),
}


@dataclass(frozen=True, slots=True)
class Attack:
    """How one peer of a run harms the others, for studies."""

    name: str  # a key of ATTACKS
    strength: float

    def __post_init__(self) -> None:
        if self.name not in ATTACKS:
            raise ConfigError(
                f"there is no attack {self.name!r}", hint=of_all(self.name, ATTACKS, most=1)
            )
        rule = ATTACKS[self.name]
        if not rule.allows(self.strength):
            raise ConfigError(
                f"attack {self.name} of strength {self.strength:g} cannot be used: "
                f"its strength must be {rule}",
                hint=rule.help,
            )

    @classmethod
    def parse(cls, text: str) -> "Attack":
        """Read NAME or NAME:STRENGTH.

        Raises:
            ConfigError: an unknown attack, or a strength that is not allowed.
        """
        name, colon, strength = text.partition(":")
        if name not in ATTACKS or not colon:
            return cls(name, float(ATTACKS[name].default) if name in ATTACKS else 0.0)
        try:
            return cls(name, float(strength))
        except ValueError:
            raise ConfigError(
                f"attack {text!r} cannot be used: what follows the colon must be a number",
                hint=f"as in {name}:{ATTACKS[name].default}; it is the {ATTACKS[name].help}",
            ) from None

    def __str__(self) -> str:
        """The text that `parse` reads."""
        return f"{self.name}:{self.strength!r}"

    @property
    def told(self) -> str:
        """One line for the person."""
        return f"{self.name}, strength {self.strength:g}: the {ATTACKS[self.name].help}"
