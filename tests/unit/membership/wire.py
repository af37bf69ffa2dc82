"""Nodes and a directory on an imaginary wire, in virtual time: it may lose and it may break."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from random import Random

from coordinator.book import Book
from coordinator.directory import Directory, Reply, WakeAt
from protocol.ids import RunId
from protocol.manifest import Manifest
from protocol.wire import membership_effects as node_effects
from protocol.wire.codec import COORDINATOR
from protocol.wire.membership import Membership
from protocol.wire.messages import WIRE_VERSION, CoordinatorMessage, Join, View
from protocol.wire.signing import sign_public

SECRET = bytes(range(32))
LEASE_S = 15.0
LATENCY_S = 0.01
DIAL_S = 0.5


@dataclass
class Peer:
    """A node and what it was told."""

    name: str
    number: int
    wishes: Manifest
    machine: Membership
    completes: Manifest  # what it would settle
    init: bytes
    route: bytes | None = None
    is_dead_wire: bool = False  # nothing passes, and nobody is told
    wake_at_s: float | None = None
    told: list[node_effects.Effect] = field(default_factory=list)

    def view(self) -> View | None:
        return self.machine.view

    def heard(self, kind: type) -> list[node_effects.Effect]:
        return [effect for effect in self.told if isinstance(effect, kind)]


class World:
    """Everything that happens is on one agenda; messages are lost by a seeded chance."""

    def __init__(self, *, founders: int = 2, loss: float = 0.0, seed: int = 0) -> None:
        self.now_s = 0.0
        self.book = Book(run=RunId(b"r" * 16), run_name="world", token=b"t" * 16, founders=founders)
        self.peers: dict[str, Peer] = {}
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._routes = count(1)
        self._chance = Random(seed)
        self._loss = loss
        self._directory: Directory | None = None
        self._directory_wake_s: float | None = None
        self.start_coordinator()

    # -- what a test does ---------------------------------------------------------------------

    def start_coordinator(self) -> None:
        self.book.incarnation += 1
        self._directory = Directory(
            self.book, sign_secret=SECRET, lease_s=LEASE_S, now_s=self.now_s
        )

    def kill_coordinator(self) -> None:
        self._directory = None
        for peer in self.peers.values():
            self._hang_up(peer)

    def add(
        self,
        name: str,
        *,
        wishes: Mapping[str, int] | None = None,
        completes: Mapping[str, int] | None = None,
        init: bytes = b"i" * 32,
        instance: int = 0,
    ) -> Peer:
        number = len(self.peers) + 1
        asked = Manifest(wishes or {})
        join = Join(
            version=WIRE_VERSION,
            token=b"t" * 16,
            name=name,
            role="peer",
            instance=bytes([128, instance, *bytes(6)]),
            address=f"tcp://10.0.0.{number}:4000",
            sign_key=bytes(32),
            wishes=asked.options(),
        )
        machine = Membership(join, sign_key=sign_public(SECRET), where="the coordinator")
        whole = Manifest(completes or {"lr": 1}).over(asked)
        peer = Peer(name, number, asked, machine, whole, init)
        self.peers[f"{name}/{instance}"] = peer
        self._take(peer, machine.start(self.now_s))
        self._dial(peer)
        return peer

    def run(self, until_s: float) -> None:
        """Let time pass."""
        while (at_s := self._next_s()) <= until_s:
            self.now_s = max(self.now_s, at_s)
            self._step()
        self.now_s = until_s

    # -- how it works -------------------------------------------------------------------------

    def _next_s(self) -> float:
        times = [at_s for at_s, _, _ in self._agenda[:1]]
        times += [p.wake_at_s for p in self.peers.values() if p.wake_at_s is not None]
        if self._directory is not None and self._directory_wake_s is not None:
            times.append(self._directory_wake_s)
        return min(times, default=float("inf"))

    def _step(self) -> None:
        if self._agenda and self._agenda[0][0] <= self.now_s:
            self._agenda.pop(0)[2]()
            return
        if self._directory is not None and (self._directory_wake_s or 1e9) <= self.now_s:
            self._directory_wake_s = None
            self._answer(self._directory.wake(self.now_s))
            return
        for peer in self.peers.values():
            if peer.wake_at_s is not None and peer.wake_at_s <= self.now_s:
                peer.wake_at_s = None
                self._take(peer, peer.machine.wake(self.now_s))
                return

    def _at(self, after_s: float, act: Callable[[], None]) -> None:
        self._agenda.append((self.now_s + after_s, next(self._order), act))
        self._agenda.sort(key=lambda item: item[:2])

    def _dial(self, peer: Peer) -> None:
        def connect() -> None:
            if peer.machine.is_over or peer.route is not None:
                return
            if self._directory is None:
                self._dial(peer)
                return
            peer.route = next(self._routes).to_bytes(5)
            self._take(peer, peer.machine.connected(self.now_s))

        self._at(DIAL_S, connect)

    def _hang_up(self, peer: Peer) -> None:
        if peer.route is None:
            return
        if self._directory is not None:
            self._directory.gone(peer.route)
        peer.route = None
        self._take(peer, peer.machine.disconnected(self.now_s))
        self._dial(peer)

    def _take(self, peer: Peer, effects: tuple[node_effects.Effect, ...]) -> None:
        for effect in effects:
            peer.told.append(effect)
            match effect:
                case node_effects.Send(message):
                    self._send(peer, message)
                case node_effects.WakeAt(at_s):
                    peer.wake_at_s = at_s
                case node_effects.Unsettled(options):
                    whole = peer.completes.over(options)
                    self._take(peer, peer.machine.settle(whole, self.now_s))
                case node_effects.Settled():
                    self._take(peer, peer.machine.ready(b"s" * 32, peer.init, self.now_s))
                case _:
                    pass

    def _send(self, peer: Peer, message: CoordinatorMessage) -> None:
        route, header = peer.route, COORDINATOR.encode(message)
        key = bytes(31) + peer.name.encode()[:1]

        def arrive() -> None:
            if self._directory is not None and route is not None and not self._is_lost(peer):
                self._answer(self._directory.receive(route, key, header, self.now_s))

        self._at(LATENCY_S, arrive)

    def _answer(self, effects: tuple[object, ...]) -> None:
        for effect in effects:
            match effect:
                case WakeAt(at_s):
                    self._directory_wake_s = at_s
                case Reply(route, message):
                    self._at(LATENCY_S, self._delivery(route, COORDINATOR.encode(message)))
                case _:
                    pass

    def _delivery(self, route: bytes, header: bytes) -> Callable[[], None]:
        def deliver() -> None:
            for peer in self.peers.values():
                if peer.route == route and not self._is_lost(peer):
                    self._take(peer, peer.machine.receive(header, self.now_s))

        return deliver

    def _is_lost(self, peer: Peer) -> bool:
        return peer.is_dead_wire or self._chance.random() < self._loss
