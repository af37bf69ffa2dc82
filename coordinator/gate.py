"""What is let through to the directory, and the count of what is not."""

import logging
from collections import Counter
from collections.abc import Mapping

from coordinator.limits import Allowance, Bounded, Rate

__all__ = ["Gate"]

_log = logging.getLogger(__name__)

MAX_KEYS = 4096  # whose rates and misdeeds are remembered
PER_KEY = Rate(burst=16, per_s=4)  # a node says three things to get ready, then three a lease
STRANGERS = Rate(burst=256, per_s=64)  # Joins of keys that are no member, all together


class Gate:
    """Rates by key. Tables that a stranger can write to are bounded."""

    def __init__(self) -> None:
        self._per_key: Allowance[bytes] = Allowance(PER_KEY, limit=MAX_KEYS)
        self._strangers: Allowance[None] = Allowance(STRANGERS, limit=1)
        self._warned: Bounded[bytes, None] = Bounded(MAX_KEYS)
        self._dropped: Counter[str] = Counter()

    @property
    def dropped(self) -> Mapping[str, int]:
        return self._dropped

    @property
    def num_keys(self) -> int:
        return max(len(self._per_key), len(self._warned))

    def admits(self, key: bytes, now_s: float) -> bool:
        """Spend one message of this key, or drop it."""
        if self._per_key.take(key, now_s):
            return True
        self.drop("too often", key)
        return False

    def refund(self, key: bytes) -> None:
        """Give back one message of this key: it was asked for."""
        self._per_key.give(key)

    def admits_stranger(self, key: bytes, now_s: float) -> bool:
        """Spend one Join of all strangers together, or drop it."""
        if self._strangers.take(None, now_s):
            return True
        self.drop("too many strangers", key)
        return False

    def drop(self, cause: str, key: bytes, detail: str = "") -> None:
        """Count it, and tell it once for each key: a stranger cannot fill the log."""
        self._dropped[cause] += 1
        if key not in self._warned:
            self._warned[key] = None
            _log.warning("dropped cause=%r key=%s %s", cause, key.hex()[:8], detail)

    def refused(self, name: str, reason: str) -> None:
        self._dropped["refused"] += 1
        _log.warning("refused name=%s: %s", name, reason)
