"""The simulated coordinator: the real directory, fed by the world."""

from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b

from coordinator.book import Book
from coordinator.directory import Directory, Effect, Reply, Save, WakeAt
from protocol.ids import PeerId, RunId
from protocol.joinstring import JoinString
from protocol.manifest import Manifest
from protocol.wire.codec import COORDINATOR
from protocol.wire.signing import sign_public

__all__ = ["OPERATOR", "CoordinatorHost", "key_of"]

LEASE_S = 15.0
OPERATOR = PeerId("coordinator")  # who gives orders does so with its own key


@lru_cache(maxsize=8192)  # two of each peer are asked for again and again
def key_of(name: str, purpose: str) -> bytes:
    """32 bytes that stand for a key; nobody forges one in a simulation, so none is a secret."""
    return blake2b(f"{purpose}/{name}".encode(), digest_size=32).digest()


class CoordinatorHost:
    def __init__(
        self,
        *,
        run_name: str,
        founders: int,
        relays: int,
        options: Manifest,
        seed: int,
        send: Callable[[bytes, bytes], bool],
        later: Callable[[float, Callable[[], None]], None],
        now_s: Callable[[], float],
    ) -> None:
        """Open a new run.

        Args:
            run_name: of the run.
            founders: peers that the lobby waits for.
            relays: that it waits for too.
            options: pinned lines of the manifest.
            seed: of the run; its id and keys derive from it.
            send: gives an encoded message to whoever is at a route, after its time on the way;
                False where nobody is any more.
            later: has something happen after a delay.
            now_s: the virtual clock.
        """
        self._send, self._later, self._now_s = send, later, now_s
        self._sign_secret = key_of(str(seed), "coordinator")
        self._book = Book(
            run=RunId(key_of(f"{run_name}/{seed}", "run")[:16]),
            run_name=run_name,
            token=key_of(str(seed), "token")[:16],
            founders=founders,
            relays=relays,
            options=options,
        )
        self._directory: Directory | None = None
        self._woken_at_s = float("inf")
        self.start()

    @property
    def join(self) -> JoinString:
        """As a peer would be given it; nothing is at that address."""
        public = sign_public(self._sign_secret)
        return JoinString("127.0.0.1", 1, key_of(OPERATOR, "curve"), public, self._book.token)

    @property
    def is_up(self) -> bool:
        return self._directory is not None

    def start(self) -> None:
        """Come up, for the first time or again, with the book that the journal kept."""
        self._book.incarnation += 1
        self._directory = Directory(
            self._book,
            sign_secret=self._sign_secret,
            lease_s=LEASE_S,
            now_s=self._now_s(),
            operator=key_of(OPERATOR, "curve"),
        )
        self._carry_out(self._directory.wake(self._now_s()))

    def stop(self) -> None:
        """Go down without a word."""
        self._directory = None

    def receive(self, route: bytes, sender: PeerId, header: bytes) -> None:
        """Take a message of a peer that came by this route, which is one process's alone."""
        if self._directory is not None:
            key = key_of(sender, "curve")
            now_s = self._now_s()
            self._carry_out(self._directory.receive(route, key, header, now_s))

    def _carry_out(self, effects: tuple[Effect, ...]) -> None:
        encoded: tuple[object, bytes] = (None, b"")
        for effect in effects:
            match effect:
                case Reply(route, message):
                    if encoded[0] is not message:  # the same view goes to many
                        encoded = (message, COORDINATOR.encode(message))
                    if not self._send(route, encoded[1]) and self._directory is not None:
                        self._directory.gone(route)
                case WakeAt(at_s):
                    self._wake_at(at_s)
                case Save():
                    pass  # the book is in memory, and outlives the directory

    def _wake_at(self, at_s: float) -> None:
        if at_s < self._woken_at_s:
            self._woken_at_s = at_s
            self._later(max(0.0, at_s - self._now_s()), self._wake)

    def _wake(self) -> None:
        self._woken_at_s = float("inf")
        if self._directory is not None:
            self._carry_out(self._directory.wake(self._now_s()))
