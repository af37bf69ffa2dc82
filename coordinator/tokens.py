"""The rights to join: how often and until when each may be used. Values only."""

import hmac
import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b

__all__ = ["TOKEN_BYTES", "Token", "token_with"]

TOKEN_BYTES = 16


@dataclass(slots=True, kw_only=True)
class Token:
    secret: bytes  # 16 bytes, in a join string
    until_s: float = 0.0  # since 1970; 0: for ever
    uses: int = 0  # nodes that it may let in; 0: any number
    used: int = 0  # nodes that came in by it
    withdrawn: bool = False

    @property
    def name(self) -> str:
        """By which people speak of it; the token cannot be told from that."""
        return blake2b(self.secret, digest_size=4).hexdigest()

    def fault(self, since_1970_s: float) -> str | None:
        """Say why it lets nobody in any more, or None while it does."""
        if self.withdrawn:
            return f"the token {self.name} was withdrawn"
        if self.until_s and since_1970_s >= self.until_s:
            return f"the token {self.name} was good until {_date(self.until_s)}"
        if self.uses and self.used >= self.uses:
            times = "once" if self.uses == 1 else f"{self.uses} times"
            return f"the token {self.name} was good {times} and is used up"
        return None

    def limits(self) -> str:
        """What it is good for, in words."""
        until = f"until {_date(self.until_s)}" if self.until_s else "for ever"
        used = f"used {self.used} times" if not self.uses else f"used {self.used} of {self.uses}"
        return f"{until}, {used}"


def token_with(tokens: Iterable[Token], secret: bytes) -> Token | None:
    """Find the token with this secret, in a time that tells nothing of the others."""
    found = None
    for token in tokens:
        if hmac.compare_digest(token.secret, secret):
            found = token
    return found


def _date(since_1970_s: float) -> str:
    rounded_s = math.ceil(since_1970_s)
    return datetime.fromtimestamp(rounded_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
