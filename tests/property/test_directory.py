"""Whatever nodes say, in whatever order: what a directory promises."""

from collections.abc import Mapping
from hashlib import blake2b

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from coordinator.book import Book
from coordinator.directory import MAX_DISPLACED, Directory, Effect, Reply, Save, WakeAt
from coordinator.gate import MAX_KEYS
from protocol.ids import RunId
from protocol.manifest import Manifest
from protocol.wire.codec import COORDINATOR
from protocol.wire.messages import (
    WIRE_VERSION,
    Admitted,
    CoordinatorMessage,
    Epoch,
    Join,
    Leave,
    NewToken,
    Ready,
    Renew,
    Revoke,
    Settle,
    SignedView,
    Told,
    View,
)
from protocol.wire.signing import open_view, sign_public

SECRET = bytes(range(32))
LEASE_S = 15.0
NAMES, KEYS = "abcde", range(6)
TOKEN = b"t" * 16
OPERATOR = b"o" * 32

names = st.sampled_from(NAMES)
keys = st.sampled_from(KEYS)
instances = st.sampled_from(range(3))
tokens = st.sampled_from([TOKEN] * 3 + [b"x" * 16])
digests = st.sampled_from([b"s" * 32, b"i" * 32])
lines = st.sampled_from([{}, {"lr": 1}, {"lr": 2}, {"rounds": 3}, {"lr": 1, "rounds": 3}])


def join(
    name: str, *, instance: int, token: bytes = TOKEN, wishes: Mapping[str, int] | None = None
) -> Join:
    return Join(
        version=WIRE_VERSION,
        token=token,
        name=name,
        role="peer",
        instance=bytes([instance] * 8),
        address="tcp://10.0.0.1:4000",
        sign_key=bytes(32),
        wishes=Manifest(wishes or {}).options(),
    )


class DirectoryMachine(RuleBasedStateMachine):
    @initialize(founders=st.integers(1, 3), pinned=lines)
    def start(self, founders: int, pinned: dict[str, int]) -> None:
        self.now_s = 0.0
        self.routes: dict[int, bytes] = {}  # newest connection of each key
        self.num_routes = 0
        self.epochs: dict[bytes, tuple[int, int]] = {}  # newest that each connection was shown
        self.epoch = (0, 0)
        self.founding: tuple[str, ...] = ()
        self.options: Manifest | None = None
        self.bound: dict[str, bytes] = {}  # name to key
        self.revoked: set[bytes] = set()  # keys
        self.written: frozenset[str] = frozenset()
        self.book = Book(
            run=RunId(b"r" * 16),
            run_name="run",
            token=TOKEN,
            founders=founders,
            options=Manifest(pinned),
        )
        self.open()

    def open(self) -> None:
        self.book.incarnation += 1
        self.directory = Directory(
            self.book, sign_secret=SECRET, lease_s=LEASE_S, now_s=self.now_s, operator=OPERATOR
        )

    # -- what may happen ------------------------------------------------------------------------

    @rule(name=names, instance=instances)
    def arrives(self, name: str, instance: int) -> None:
        """All that a node in order says to get ready."""
        key = NAMES.index(name)
        self.says(key, join(name, instance=instance))
        self.says(key, Settle(Manifest({"lr": 1, **self.book.options}).options()))
        self.says(key, Ready(b"s" * 32, b"i" * 32))

    @rule(key=keys, name=names, instance=instances, token=tokens, wishes=lines)
    def joins(
        self, key: int, name: str, instance: int, token: bytes, wishes: dict[str, int]
    ) -> None:
        is_back = self.bound.get(name) == self.key(key)
        effects = self.says(key, join(name, instance=instance, token=token, wishes=wishes))
        if any(isinstance(e, Reply) and isinstance(e.message, Admitted) for e in effects):
            assert is_back or token == TOKEN
            assert self.key(key) not in self.revoked

    @rule(key=keys, options=lines)
    def settles(self, key: int, options: dict[str, int]) -> None:
        self.says(key, Settle(Manifest(options).options()))

    @rule(key=keys, schema=digests, init=digests)
    def is_ready(self, key: int, schema: bytes, init: bytes) -> None:
        self.says(key, Ready(schema, init))

    @rule(key=keys, counter=st.integers(0, 5), round_no=st.integers(0, 9))
    def renews(self, key: int, counter: int, round_no: int) -> None:
        self.says(key, Renew(Epoch(1, counter), round_no, "train"))

    @rule(key=keys)
    def leaves(self, key: int) -> None:
        self.says(key, Leave("done"))

    @rule(name=names)
    def is_revoked(self, name: str) -> None:
        header = COORDINATOR.encode(Revoke(name))
        before = self.directory.dropped.get("too often", 0)
        effects = self.directory.receive(b"admin", OPERATOR, header, self.now_s)
        self.take(effects)
        if any(isinstance(e, Reply) and isinstance(e.message, Told) for e in effects):
            self.revoked.add(self.bound[name])
        else:  # a person gives no seventeen orders at one instant
            assert name not in self.bound or self.directory.dropped["too often"] > before

    @rule(key=keys, name=names)
    def gives_orders_without_the_right(self, key: int, name: str) -> None:
        before = self.directory.view
        self.says(key, Revoke(name))
        self.says(key, NewToken(b"y" * 16, 0.0, 0))
        assert [m.state == "revoked" for m in self.directory.view.members] == [
            m.state == "revoked" for m in before.members
        ]
        assert len(self.book.tokens) == 1

    @rule(key=keys, header=st.binary(max_size=60))
    def talks_nonsense(self, key: int, header: bytes) -> None:
        self.take(self.directory.receive(self.route(key), self.key(key), header, self.now_s))

    @rule(key=keys)
    def cuts(self, key: int) -> None:
        self.reconnects(key)

    def reconnects(self, key: int) -> None:
        self.num_routes += 1
        self.routes[key] = self.num_routes.to_bytes(5)

    @rule(seconds=st.sampled_from([0.3, 4.0, LEASE_S, 100.0]))
    def time_passes(self, seconds: float) -> None:
        self.now_s += seconds
        self.take(self.directory.wake(self.now_s))

    @rule()
    def restarts(self) -> None:
        self.routes.clear()
        self.open()

    # -- how it is watched ----------------------------------------------------------------------

    def route(self, key: int) -> bytes:
        if key not in self.routes:
            self.reconnects(key)
        return self.routes[key]

    def key(self, key: int) -> bytes:
        return blake2b(bytes([key]), digest_size=32).digest()

    def says(self, key: int, message: CoordinatorMessage) -> tuple[Effect, ...]:
        header = COORDINATOR.encode(message)
        effects = self.directory.receive(self.route(key), self.key(key), header, self.now_s)
        self.take(effects)
        return effects

    def take(self, effects: tuple[Effect, ...]) -> None:
        members = frozenset(self.book.entries)
        assert Save() in effects or members == self.written  # nobody is let in unwritten
        self.written = members
        for effect in effects:
            match effect:
                case WakeAt(at_s):
                    assert at_s > self.now_s
                case Reply(route, message):
                    COORDINATOR.encode(message)  # it can be sent
                    self.shown(route, message)
                case Save():
                    pass

    def shown(self, route: bytes, message: CoordinatorMessage) -> None:
        signed = message.view if isinstance(message, Admitted) else message
        if isinstance(signed, SignedView):
            view = open_view(signed, sign_public(SECRET)).view
            assert order(view) >= self.epochs.get(route, (0, 0))
            self.epochs[route] = order(view)

    # -- what is promised -------------------------------------------------------------------------

    @invariant()
    def an_epoch_never_goes_back(self) -> None:
        view = self.directory.view
        assert order(view) >= self.epoch
        self.epoch = order(view)

    @invariant()
    def round_ones_roster_never_changes_and_has_enough_peers(self) -> None:
        founding = self.directory.view.founding
        assert founding == self.founding or not self.founding
        assert not founding or len(founding) >= self.book.founders
        assert list(founding) == sorted(set(founding))
        self.founding = founding

    @invariant()
    def a_settled_manifest_never_changes(self) -> None:
        if self.options is not None:
            assert self.book.settled
            assert self.book.options == self.options
        self.options = self.book.options if self.book.settled else None

    @invariant()
    def a_name_has_one_key_and_a_key_one_name_for_ever(self) -> None:
        now = {member.name: member.curve_key for member in self.directory.view.members}
        assert len(set(now.values())) == len(now)
        assert self.bound.items() <= now.items()
        self.bound = now

    @invariant()
    def who_was_revoked_stays_so(self) -> None:
        members = self.directory.view.members
        assert {m.curve_key for m in members if m.state == "revoked"} == self.revoked

    @invariant()
    def nobody_is_ready_before_the_manifest_is_settled(self) -> None:
        states = {member.state for member in self.directory.view.members}
        assert self.book.settled or "ready" not in states

    @invariant()
    def every_table_is_bounded(self) -> None:
        sizes = self.directory.sizes()
        assert sizes["sessions"] <= len(self.book.entries)
        assert sizes["displaced"] <= MAX_DISPLACED
        assert sizes["keys"] <= MAX_KEYS


def order(view: View) -> tuple[int, int]:
    return view.epoch.incarnation, view.epoch.counter


TestDirectory = DirectoryMachine.TestCase
TestDirectory.settings = settings(stateful_step_count=40)


def test_ten_thousand_strangers_leave_no_trace_but_a_bounded_one() -> None:
    book = Book(run=RunId(b"r" * 16), run_name="run", token=bytes(16), founders=2)
    directory = Directory(book, sign_secret=SECRET, lease_s=LEASE_S, now_s=0.0)
    for number in range(10_000):
        key = number.to_bytes(32)
        directory.receive(key[-5:], key, b"\x00", 0.0)
    assert directory.sizes() == {"sessions": 0, "displaced": 0, "keys": MAX_KEYS}
    assert directory.dropped == {"garbage": 10_000}
