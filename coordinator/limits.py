"""How much a stranger may ask for: rates by key, in tables that cannot grow without end."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["Allowance", "Bounded", "Rate"]

K = TypeVar("K")
V = TypeVar("V")


class Bounded(Generic[K, V]):
    """A table that forgets what was longest untouched when it is full."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._items: OrderedDict[K, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, key: K) -> bool:
        return key in self._items

    def __setitem__(self, key: K, value: V) -> None:
        self._items[key] = value
        self._items.move_to_end(key)
        if len(self._items) > self._limit:
            self._items.popitem(last=False)

    def get(self, key: K) -> V | None:
        return self._items.get(key)

    def discard(self, key: K) -> None:
        self._items.pop(key, None)


@dataclass(frozen=True, slots=True)
class Rate:
    burst: float  # messages at once, >= 1
    per_s: float  # messages a second after that, > 0


@dataclass(slots=True)
class _Bucket:
    left: float
    at_s: float


class Allowance(Generic[K]):
    """A token bucket for each key."""

    def __init__(self, rate: Rate, *, limit: int) -> None:
        """Start with full buckets.

        Args:
            rate: of each key.
            limit: keys remembered; a forgotten one starts full again.
        """
        self._rate = rate
        self._buckets: Bounded[K, _Bucket] = Bounded(limit)

    def __len__(self) -> int:
        return len(self._buckets)

    def give(self, key: K) -> None:
        """Give back one message of a key that has just spent one."""
        bucket = self._buckets.get(key)
        if bucket is not None:
            bucket.left = min(bucket.left + 1.0, self._rate.burst)

    def take(self, key: K, now_s: float) -> bool:
        """Spend one message of this key, or say that none is left."""
        bucket = self._buckets.get(key) or _Bucket(self._rate.burst, now_s)
        grown = bucket.left + (now_s - bucket.at_s) * self._rate.per_s
        bucket.left, bucket.at_s = min(grown, self._rate.burst), now_s
        self._buckets[key] = bucket
        if bucket.left < 1.0:
            return False
        bucket.left -= 1.0
        return True
