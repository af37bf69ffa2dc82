"""Nodes and a directory on imaginary ways, in virtual time: words get lost, and nodes die.

Everything that happens is on one agenda; equal seeds give equal stories.
"""

import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from random import Random

from coordinator.book import Book
from coordinator.directory import Directory, Reply, WakeAt
from peer.effects import Fetch
from peer.faults.table import Fault
from peer.node import Node, Plan
from peer.options.fields import Value
from peer.roles import Role
from peer.work import SnapshotRef
from protocol.ids import PeerId, RunId
from protocol.manifest import Manifest
from protocol.wire.codec import COORDINATOR, encode_document
from protocol.wire.membership import Membership
from protocol.wire.messages import WIRE_VERSION, CoordinatorMessage, Join
from protocol.wire.signing import sign_public
from tests.unit.node.dweller import Dweller, Event, secret_of

SECRET = bytes(range(32))
TOKEN = b"t" * 16
OPERATOR = b"o" * 32  # the key that gives orders
LEASE_S = 15.0
LATENCY_S = 0.01
DIAL_S = 0.5  # between attempts to connect
PULL_S = 0.1
REACH_S = 60.0  # that a pull waits for a node that is not there


@dataclass(eq=False)
class _Way:
    """A connection of one node to another's address."""

    asker: Dweller
    to: PeerId
    address: str
    route: bytes
    other: Dweller | None = None  # while it is up
    is_open: bool = True


class Valley:
    def __init__(
        self, *, founders: int, loss: float = 0.0, seed: int = 0, **options: Value
    ) -> None:
        """Begin with a coordinator and nobody else; each word is lost with chance `loss`."""
        self.now_s = 0.0
        self.dwellers: list[Dweller] = []
        self._chance = Random(seed)
        self._loss = loss
        self._order = count()
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count(1)
        self._ways: dict[tuple[Dweller, PeerId], _Way] = {}
        self._pulls: dict[tuple[Dweller, PeerId], object] = {}  # the one under way, if any
        self._cut_off: set[Dweller] = set()
        self._lines: dict[bytes, Dweller] = {}  # connections to the coordinator, by route
        pinned = {key.replace("__", "."): value for key, value in options.items()}
        self.book = Book(
            run=RunId(b"r" * 16),
            run_name="valley",
            token=TOKEN,
            founders=founders,
            options=Manifest(pinned),
        )
        self.directory: Directory | None = None
        self.start_coordinator()

    # -- what a test does ---------------------------------------------------------------------

    def start_coordinator(self) -> None:
        self.book.incarnation += 1
        self.directory = Directory(
            self.book, sign_secret=SECRET, lease_s=LEASE_S, now_s=self.now_s, operator=OPERATOR
        )

    def cut_off(self, dweller: Dweller) -> None:
        """Take a node's way to the coordinator away, for good."""
        self._cut_off.add(dweller)
        self._lines = {r: d for r, d in self._lines.items() if d is not dweller}
        dweller.feed(dweller.node.coordinator_disconnected("the way is gone", self.now_s))

    def order(self, order: CoordinatorMessage) -> None:
        """Have the coordinator's operator say something to it."""
        assert self.directory is not None
        header = COORDINATOR.encode(order)
        self._answer(self.directory.receive(b"operator", OPERATOR, header, self.now_s))

    def kill_coordinator(self) -> None:
        self.directory = None
        for dweller in self._lines.values():
            if dweller.plays:
                reason = "the connection broke"
                dweller.feed(dweller.node.coordinator_disconnected(reason, self.now_s))
                self._dial_coordinator(dweller)
        self._lines.clear()

    def add(
        self,
        name: str,
        *,
        train_s: float = 1.0,
        alone: bool = False,
        faults: tuple[Fault, ...] = (),
        **explicit: Value,
    ) -> Dweller:
        """Start a node, with the key that belongs to its name."""
        number = next(self._numbers)
        typed = {key.replace("__", "."): value for key, value in explicit.items()}
        wishes = {"data.input": "1x8x8", "data.classes": 2, **typed}
        address = f"tcp://10.0.0.{number}:4000"
        join = Join(
            version=WIRE_VERSION,
            token=TOKEN,
            name=name,
            role="peer",
            instance=number.to_bytes(8),
            address=address,
            sign_key=sign_public(secret_of(name)),
            wishes=Manifest(wishes).options(),
        )
        plan = Plan(
            me=PeerId(name),
            role=Role.PEER,
            explicit=wishes,
            data="shard",
            device="cpu",
            out="",
            alone=alone,
            faults=faults,
        )
        membership = Membership(join, sign_key=sign_public(SECRET), where="the coordinator")
        dweller = Dweller(Node(plan, membership), self, address, train_s)
        self.dwellers.append(dweller)
        dweller.feed(dweller.node.start(self.now_s))
        self._dial_coordinator(dweller)
        self._watch(dweller)
        return dweller

    def settle(self, names: Iterable[str], *, train_s: float = 1.0) -> list[Dweller]:
        return [self.add(name, train_s=train_s) for name in names]

    def kill(self, dweller: Dweller) -> None:
        """It is gone between two instants, and has told nobody."""
        dweller.is_alive = False
        self._lines = {r: d for r, d in self._lines.items() if d is not dweller}
        for way in list(self._ways.values()):
            if way.other is dweller:
                self._break(way)

    def stop(self, dweller: Dweller, reason: str = "stopped") -> None:
        dweller.feed(dweller.node.stop(reason, self.now_s))
        self._bury(dweller)

    def play(self, until_s: float, *, until: Callable[[], bool] = lambda: False) -> bool:
        """Let time pass until nobody plays any more, or `until` holds; False if time ran out."""
        while any(d.plays for d in self.dwellers) and not until():
            at_s = self._next_s()
            if at_s > until_s:
                return False
            self.now_s = max(self.now_s, at_s)
            heapq.heappop(self._agenda)[2]()
        return True

    # -- time -----------------------------------------------------------------------------------

    def _next_s(self) -> float:
        assert self._agenda, "nothing is left to happen, and somebody still plays"
        return self._agenda[0][0]

    def _at(self, delay_s: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (self.now_s + max(delay_s, 0.0), next(self._order), event))

    def later(self, dweller: Dweller, delay_s: float, acts_of: Event) -> None:
        def happen() -> None:
            if dweller.plays:
                dweller.feed(acts_of(dweller.node, self.now_s))
                self._bury(dweller)

        self._at(delay_s, happen)

    def _watch(self, dweller: Dweller) -> None:
        """Wake a node when it asked for that: looked at ten times a second."""

        def tick() -> None:
            if not dweller.plays:
                return
            wake_at_s = dweller.node.wake_at_s
            if wake_at_s is not None and wake_at_s <= self.now_s:
                dweller.feed(dweller.node.wake(self.now_s))
            self._at(0.1, tick)

        tick()

    # -- the coordinator -------------------------------------------------------------------------

    def _dial_coordinator(self, dweller: Dweller) -> None:
        def connect() -> None:
            if not dweller.plays or dweller in self._cut_off:
                return
            if self.directory is None:
                self._at(DIAL_S, connect)
                return
            self._lines[next(self._numbers).to_bytes(5)] = dweller
            dweller.feed(dweller.node.coordinator_connected(self.now_s))

        self._at(LATENCY_S, connect)

    def to_coordinator(self, dweller: Dweller, header: bytes) -> None:
        routes = [route for route, other in self._lines.items() if other is dweller]
        key = dweller.name.encode().ljust(32)

        def arrive() -> None:
            if self.directory is not None:
                self._answer(self.directory.receive(routes[0], key, header, self.now_s))

        if routes and not self._is_lost():
            self._at(LATENCY_S, arrive)

    def _answer(self, effects: Iterable[object]) -> None:
        for effect in effects:
            match effect:
                case WakeAt(at_s):
                    self._at(at_s - self.now_s, self._wake_directory)
                case Reply(route, message) if not self._is_lost():
                    self._at(LATENCY_S, self._delivery(route, COORDINATOR.encode(message)))
                case _:
                    pass

    def _wake_directory(self) -> None:
        if self.directory is not None:
            self._answer(self.directory.wake(self.now_s))

    def _delivery(self, route: bytes, header: bytes) -> Callable[[], None]:
        def deliver() -> None:
            dweller = self._lines.get(route)
            if dweller is not None and dweller.plays:
                dweller.feed(dweller.node.coordinator_said(header, self.now_s))
                self._bury(dweller)

        return deliver

    # -- between nodes -----------------------------------------------------------------------------

    def hang_up(self, dweller: Dweller, name: PeerId) -> None:
        old = self._ways.pop((dweller, name), None)
        if old is not None:
            old.is_open, old.other = False, None
            if self._pulls.pop((dweller, name), None) is not None:
                self.later(dweller, 0.0, lambda n, s: n.pull_failed(name, "hung up", s))

    def dial(self, dweller: Dweller, name: PeerId, address: str) -> None:
        self.hang_up(dweller, name)
        way = _Way(dweller, name, address, next(self._numbers).to_bytes(5))
        self._ways[dweller, name] = way
        self._connect(way)

    def _connect(self, way: _Way) -> None:
        def attempt() -> None:
            if not way.is_open or not way.asker.plays:
                return
            other = self._at_address(way.address)
            if other is None or way.asker.name not in other.names:
                self._at(DIAL_S, attempt)
                return
            way.other = other
            way.asker.feed(way.asker.node.link_connected(way.to, self.now_s))

        self._at(LATENCY_S, attempt)

    def _break(self, way: _Way) -> None:
        way.other = None
        if way.is_open and way.asker.plays:
            way.asker.feed(way.asker.node.link_disconnected(way.to, self.now_s))
            self._connect(way)

    def _bury(self, dweller: Dweller) -> None:
        """If it is over, its process ends: its goodbyes arrive, then its connections break."""

        def end() -> None:
            for way in list(self._ways.values()):
                if way.other is dweller:
                    self._break(way)

        if dweller.over is not None:
            self._at(2 * LATENCY_S, end)

    def ask(self, dweller: Dweller, name: PeerId, header: bytes) -> None:
        way = self._ways[dweller, name]
        other = way.other

        def arrive() -> None:
            is_heard = other is not None and dweller.name in other.names
            if is_heard and other is not None and other.plays and way.other is other:
                other.asked(way.route, dweller.name, header)

        if other is not None and not self._is_lost():
            self._at(LATENCY_S, arrive)

    def answer(self, dweller: Dweller, route: bytes, header: bytes) -> None:
        def arrive() -> None:
            for way in list(self._ways.values()):
                if way.route == route and way.other is dweller and way.asker.plays:
                    way.asker.feed(way.asker.node.link_said(way.to, header, self.now_s))

        if not self._is_lost():
            self._at(LATENCY_S, arrive)

    def pull(self, dweller: Dweller, fetch: Fetch) -> None:
        """Take the time of a pull; it fails when the other is not there to its end."""
        name = fetch.neighbour
        address = self._ways[dweller, name].address
        encoded = encode_document(fetch.manifest)
        snapshot = SnapshotRef(encoded, fetch.digest, f"/inbox/{name}.{fetch.slot}", 0)

        pull = self._pulls[dweller, name] = object()

        def failed(reason: str) -> Event:
            return lambda node, now_s: node.pull_failed(name, reason, now_s)

        def end(event: Event) -> None:
            if self._pulls.get((dweller, name)) is pull:
                del self._pulls[dweller, name]
                self.later(dweller, 0.0, event)

        def arrive() -> None:
            other = self._at_address(address)
            if other is None:
                self._at(REACH_S - PULL_S, lambda: end(failed("not reached for 60 s")))
            elif dweller.name not in other.names:
                self._at(REACH_S - PULL_S, lambda: end(failed("no piece for 60 s")))
            elif fetch.digest not in other.offered or self._is_lost():
                end(failed("the digest differs"))
            else:
                end(lambda node, now_s: node.pulled(name, snapshot, now_s))

        self._at(PULL_S, arrive)

    def _at_address(self, address: str) -> Dweller | None:
        return next((d for d in self.dwellers if d.address == address and d.plays), None)

    def _is_lost(self) -> bool:
        return self._chance.random() < self._loss


def ends(dwellers: Iterable[Dweller]) -> Mapping[str, tuple[int, str]]:
    """How each of them ended."""
    return {d.name: (d.over.code, d.over.reason) for d in dwellers if d.over is not None}
