"""Both sides of a transfer, held to what they promise whatever is sent to them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

from protocol.errors import RemoteProtocolError
from protocol.wire.codec import PEER
from protocol.wire.link_effects import Send
from protocol.wire.messages import (
    MAX_PIECE_BYTES,
    MIN_PIECE_BYTES,
    Data,
    Err,
    Get,
    Part,
    SnapshotManifest,
    TensorSpec,
)
from protocol.wire.pulling import FREE_RESUMES, WINDOW, Complete, Failed, Pull, Verify
from protocol.wire.serving import MAX_CREDIT, MAX_TRANSFERS_PER_KEY, Serving

__all__ = ["NAME", "SIZES", "Victim", "check_serving"]

NAME = b"n" * 32
SIZES = (0, 1, 64, 20_000, MAX_PIECE_BYTES, 1_500_001)  # of tensors, bytes: one piece and more


def check_serving(it: Serving) -> None:
    """Hold the giving side to the few transfers and credits that it keeps for each key."""
    of_key = Counter(transfer.key for transfer in it._transfers.values())
    assert max(of_key.values(), default=0) <= MAX_TRANSFERS_PER_KEY
    assert all(0 <= transfer.credit <= MAX_CREDIT for transfer in it._transfers.values())


class Victim:
    """A pull that suffers whatever is sent to it."""

    def __init__(self, sizes: Sequence[int], held: int) -> None:
        specs = tuple(
            TensorSpec("params", f"t{i}", "uint8", (size,), b"d" * 32)
            for i, size in enumerate(sizes)
        )
        manifest = SnapshotManifest(
            run=bytes(16), sender="a", part=Part.RESULT, round_no=1, base=b"", memory=b"",
            degree=1, num_examples=1, num_steps=1, nova_a=1.0, lr=0.1, start_loss=1.0,
            class_counts=(), tensors=specs,
        )  # fmt: skip
        have = {number for number in range(len(sizes)) if held >> number & 1}
        self.pull = Pull(manifest, digest=NAME, xids=count(1), now_s=0.0, held=have)
        self.ends: list[object] = []
        self.good: set[int] = set()
        self.asked = self.taken = 0
        self._handed: set[int] = set()
        self._now_s = 0.0
        self._newest = Get(0, NAME, 0, 1, MIN_PIECE_BYTES, WINDOW)
        self.note(self.pull.begin())

    def note(self, effects: tuple[object, ...]) -> None:
        for effect in effects:
            match effect:
                case Send(Get() as get):
                    assert any(s.start <= get.offset < get.end == s.end for s in self.pull.spans)
                    PEER.encode(get)  # it fits the wire
                    self._newest = get
                    self.asked += 1
                case Verify(tensor, place, _, is_last):
                    whole = self.pull.layout.places[tensor]
                    assert whole.start <= place.start <= place.end <= whole.end
                    if is_last:
                        assert tensor not in self._handed
                        self._handed.add(tensor)
                case Complete() | Failed():
                    self.ends.append(effect)
                case _:
                    pass

    @contextmanager
    def judging(self) -> Iterator[None]:
        """Who breaks the rules meanwhile has ended the pull."""
        try:
            yield
        except RemoteProtocolError:
            self.note(self.pull.fail("it broke the rules"))

    def suffer(self, what: str, *of: Any) -> None:
        getattr(self, f"_{what}")(*of)

    def check(self) -> None:
        """It ended once at most, with all that it wrote being good, and did not ask for ever."""
        assert len(self.ends) <= 1
        assert self.pull.is_done == bool(self.ends)
        if self.ends == [Complete()]:
            assert self.good == set(range(len(self.pull.layout.places)))
        assert self.asked <= FREE_RESUMES + 2 * self.taken + len(self.pull.spans) + 1

    def _data(self, xid: int, offset: int | None, off_by: int) -> None:
        due = self.pull._frontier if offset is None else offset
        self._place(Data(xid or self._newest.xid, due), off_by)

    def _place(self, data: Data, off_by: int) -> None:
        place = self.pull.place(data)
        size = 0
        if place is not None:
            assert any(s.start <= place.start < place.end <= s.end for s in self.pull.spans)
            size = place.end - place.start + off_by
            self.taken += off_by == 0
        self.note(self.pull.receive(data, size, self._now_s))

    def _says(self, message: Data | Err, off_by: int) -> None:
        """A message as it came, with a payload that is off by so many bytes from what fits."""
        if isinstance(message, Data):
            self._place(message, off_by)
        else:
            self.note(self.pull.receive(message, 0, self._now_s))

    def _err(self, xid: int) -> None:
        self.note(self.pull.receive(Err(xid, "no"), 0, self._now_s))

    def _connected(self) -> None:
        self.note(self.pull.connected(self._now_s))

    def _disconnected(self) -> None:
        self.pull.disconnected()

    def _wait(self, seconds: float) -> None:
        self._now_s += seconds
        self.note(self.pull.wake(self._now_s))

    def _verified(self, tensor: int, is_good: bool) -> None:
        if tensor not in self._handed - self.good:
            return  # the hashers say nothing of what they were not given
        if is_good:
            self.good.add(tensor)
        self.note(self.pull.verified(tensor=tensor, is_good=is_good))
