"""Targets `link`, `membership`, `directory`: those who ask, and the coordinator."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

from protocol.errors import RemoteProtocolError
from protocol.manifest import Manifest
from protocol.wire import link as links
from protocol.wire import membership_effects as joining
from protocol.wire.codec import COORDINATOR, PEER, encode_document
from protocol.wire.digest import digest
from protocol.wire.link import Link
from protocol.wire.membership import Membership
from protocol.wire.messages import (
    WIRE_VERSION,
    Admitted,
    Bye,
    CoordinatorMessage,
    DoneAck,
    Epoch,
    Join,
    Lease,
    Member,
    NotYet,
    Offer,
    Part,
    PeerMessage,
    Refuse,
    ShowView,
    SignedView,
    View,
    ViewPart,
    Welcome,
)
from protocol.wire.signing import (
    Purpose,
    seal_view,
    sign,
    sign_public,
    sign_snapshot,
    signed_snapshot,
)
from tests.fuzz.feed import Feed
from tests.property.test_directory import DirectoryMachine
from tests.unit.wire.conversation import (
    HELLO,
    OTHER_RUN,
    RUN,
    SCHEMA,
    SECRET,
    SIGN_KEY,
    A,
    B,
    manifest,
    name_of,
)

# -- a neighbour that answers ------------------------------------------------------------------


@cache
def _offer(round_no: int, sender: str, run: bytes, secret: bytes) -> tuple[bytes, bytes]:
    """A manifest, and the signature of whoever has this secret."""
    encoded = encode_document(manifest(round_no, sender=sender, run=run))
    return encoded, sign_snapshot(secret, digest(encoded))


@cache
def _step(round_no: int, base: int, sender: str, run: bytes) -> bytes:
    """The manifest of a step to this round's result, from that of another one."""
    whole = manifest(round_no, sender=sender, run=run)
    return encode_document(replace(whole, part=Part.STEP, base=name_of(base)))


class Asking:
    """A link of b's to a, and what comes back on it."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._now_s = 0.0
        self._said: list[bytes] = []
        self._asked: int | None = None
        self._signature = b""  # of the newest offer
        self._holds = b""
        self._link = Link(HELLO, neighbour=A, sign_key=SIGN_KEY, stepped=SCHEMA)

    def run(self) -> None:
        while not self._feed.is_over:
            self._note(self._step())

    def _step(self) -> tuple[links.Effect, ...]:
        feed, link = self._feed, self._link
        match feed.byte() % 10:
            case 0:
                return self._hears(feed.block())
            case 1 | 2 | 3 | 4:
                return self._hears(PEER.encode(self._word()))
            case 5:
                return self._hears(feed.pick(self._said)) if self._said else ()
            case 6:
                up = feed.byte() % 3
                return link.connected(self._now_s) if up else link.disconnected(self._now_s)
            case 7:
                self._now_s += feed.pick((0.1, 2.0, 10.0, 20.0, 61.0))
                return link.wake(self._now_s)
            case 8:
                self._asked = feed.byte() % 4
                part, number = feed.pick((Part.RESULT, *Part)), feed.byte() % 4
                self._holds = name_of(number) if number else b""
                return link.ask(self._asked, self._now_s, part, self._holds)
            case _:
                return link.finish(self._now_s) if feed.byte() == 0 else ()

    def _hears(self, header: bytes) -> tuple[links.Effect, ...]:
        self._said = [*self._said[-15:], header]
        try:
            message = PEER.decode(header)
            if isinstance(message, Offer):
                self._signature = message.signature
            return self._link.receive(message, self._now_s)
        except RemoteProtocolError as error:
            return self._link.fail(str(error), self._now_s)

    def _word(self) -> PeerMessage:
        feed = self._feed
        run = feed.pick((RUN, RUN, RUN, OTHER_RUN))
        match feed.byte() % 7:
            case 0:
                return Welcome(feed.pick((A, A, B)), feed.byte())
            case 1:
                return Refuse(feed.pick(("no", "never")))
            case 2:
                return NotYet(run, feed.byte() % 4, feed.byte() % 4, 1, "train", 0.5, 1e8)
            case 3 | 4:
                of_run = feed.pick((RUN, RUN, RUN, OTHER_RUN))
                secret = feed.pick((SECRET, SECRET, b"z" * 32))
                encoded, signature = _offer(feed.byte() % 4, feed.pick((A, A, B)), of_run, secret)
                attempt = feed.pick((0, 1, 2, 3, 2**31))
                round_no = feed.byte() % 4
                step = b""
                if feed.byte() % 2:
                    step = _step(round_no, feed.byte() % 4, feed.pick((A, A, B)), of_run)
                return Offer(run, round_no, attempt, encoded, signature, step)
            case 5:
                return DoneAck(run)
            case _:
                return Bye("tired")

    def _note(self, effects: tuple[links.Effect, ...]) -> None:
        for effect in effects:
            match effect:
                case links.Send(message):
                    PEER.encode(message)
                case links.WakeAt(at_s):
                    assert self._now_s - 1e3 < at_s < self._now_s + 1e3
                case links.Answered(round_no, got, name, step):
                    if step is not None:
                        assert (step.manifest.sender, step.manifest.run) == (A, RUN)
                        assert step.manifest.base == self._holds != b""
                        assert step.manifest.round_no == round_no
                    assert self._asked is not None
                    assert round_no == got.round_no >= self._asked
                    assert (got.sender, got.run) == (A, RUN)
                    assert digest(encode_document(got)) == name
                    assert signed_snapshot(SIGN_KEY, name, self._signature)
                    self._asked = None
                case _:
                    pass


def link(data: bytes) -> None:
    """A link, and a neighbour that says anything on it."""
    Asking(Feed(data)).run()


# -- a coordinator that answers ------------------------------------------------------------------

VIEWS = b"c" * 32  # what the coordinator signs with
OPTIONS: tuple[dict[str, int], ...] = ({}, {"lr": 1}, {"lr": 2}, {"lr": 1, "rounds": 3})


@cache
def _view(counter: int, state: str, secret: bytes) -> SignedView:
    member = Member("m", "peer", state, "tcp://10.0.0.1:4000", bytes(32), bytes(32), 0)
    view = View(bytes(16), "run", Epoch(1, counter), 1, (), (member,))
    return seal_view(view, secret)


class Joining:
    """A node's membership, and a coordinator (or whoever has its address) that says anything."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._now_s = 0.0
        self._epoch = (0, 0)
        join = Join(
            version=WIRE_VERSION, token=bytes(16), name="m", role="peer", instance=bytes(8),
            address="tcp://10.0.0.1:4000", sign_key=bytes(32), wishes=Manifest({"lr": 1}).options(),
        )  # fmt: skip
        self._node = Membership(join, sign_key=sign_public(VIEWS), where="there")
        self._note(self._node.start(0.0))

    def run(self) -> None:
        while not self._feed.is_over:
            self._note(self._step())

    def _step(self) -> tuple[joining.Effect, ...]:
        feed, node = self._feed, self._node
        match feed.byte() % 10:
            case 0:
                return node.receive(feed.block(), self._now_s)
            case 1:  # signed by the coordinator, whatever it is
                body = feed.block() or b"\0"
                signed = SignedView(body, sign(VIEWS, Purpose.VIEW, body))
                return node.receive(COORDINATOR.encode(signed), self._now_s)
            case 2 | 3 | 4:
                return node.receive(COORDINATOR.encode(self._word()), self._now_s)
            case 5:
                try:
                    return node.overhear(self._signed())
                except RemoteProtocolError:
                    return ()
            case 6:
                up = feed.byte() % 3
                return node.connected(self._now_s) if up else node.disconnected(self._now_s)
            case 7:
                self._now_s += feed.pick((0.1, 2.0, 10.0, 61.0, 1e6))
                return node.wake(self._now_s)
            case 8:
                return node.settle(Manifest(feed.pick(OPTIONS)), self._now_s)
            case _:
                return node.ready(bytes(32), bytes(32), self._now_s)

    def _signed(self) -> SignedView:
        feed = self._feed
        state = feed.pick(("joining", "ready", "lost", "revoked"))
        return _view(feed.byte() % 4, state, feed.pick((VIEWS, VIEWS, b"z" * 32)))

    def _word(self) -> CoordinatorMessage:
        feed = self._feed
        match feed.byte() % 5:
            case 0 | 1:
                options = Manifest(feed.pick(OPTIONS)).options()
                run = feed.pick((bytes(16), bytes(16), b"o" * 16))
                lease_s = feed.pick((0.0, 1.0, 30.0, 1e8))
                return Admitted(run, feed.byte() % 2 == 1, options, lease_s, self._signed())
            case 2:
                return Lease(feed.pick((0.0, 1.0, 30.0, 1e8)), Epoch(feed.byte(), 0))
            case 3:
                return ShowView(feed.pick((0, 1, 10**6)))
            case _:
                return Refuse("no") if feed.byte() == 0 else self._signed()

    def _note(self, effects: tuple[joining.Effect, ...]) -> None:
        for effect in effects:
            match effect:
                case joining.Send(message):
                    COORDINATOR.encode(message)
                case joining.WakeAt(at_s):
                    assert self._now_s <= at_s < self._now_s + 1e10
                case joining.ViewChanged(view, _):
                    assert (view.epoch.incarnation, view.epoch.counter) >= self._epoch
                    self._epoch = view.epoch.incarnation, view.epoch.counter
                case _:
                    pass


def membership(data: bytes) -> None:
    """A node's membership, and a coordinator that says anything to it."""
    Joining(Feed(data)).run()


# -- the coordinator's port ----------------------------------------------------------------------

NAMES, TOKENS = "abcde", (b"t" * 16, b"t" * 16, b"x" * 16)
MAX_STEPS = 32  # a view is signed in most of them
DIGESTS = (b"s" * 32, b"i" * 32)


def directory(data: bytes) -> None:
    """The directory of members, held to its promises; keys that may say anything."""
    feed = Feed(data)
    machine = DirectoryMachine()
    machine.start(founders=1 + feed.byte() % 3, pinned=feed.pick(OPTIONS))
    for _ in range(MAX_STEPS):
        if feed.is_over:
            break
        _steps(machine, feed)[feed.byte() % 12]()
        for promise in PROMISES:
            promise(machine)


def _steps(machine: DirectoryMachine, feed: Feed) -> tuple[Callable[[], None], ...]:
    return (
        lambda: machine.arrives(name=feed.pick(NAMES), instance=feed.byte() % 3),
        lambda: machine.joins(
            key=feed.byte() % 6,
            name=feed.pick(NAMES),
            instance=feed.byte() % 3,
            token=feed.pick(TOKENS),
            wishes=feed.pick(OPTIONS),
        ),
        lambda: machine.settles(key=feed.byte() % 6, options=feed.pick(OPTIONS)),
        lambda: machine.is_ready(
            key=feed.byte() % 6, schema=feed.pick(DIGESTS), init=feed.pick(DIGESTS)
        ),
        lambda: machine.renews(
            key=feed.byte() % 6, counter=feed.byte() % 6, round_no=feed.byte() % 10
        ),
        lambda: machine.leaves(key=feed.byte() % 6),
        lambda: machine.is_revoked(name=feed.pick(NAMES)),
        lambda: machine.gives_orders_without_the_right(key=feed.byte() % 6, name=feed.pick(NAMES)),
        lambda: machine.talks_nonsense(key=feed.byte() % 6, header=feed.block()),
        lambda: machine.cuts(key=feed.byte() % 6),
        lambda: machine.time_passes(seconds=feed.pick((0.3, 4.0, 15.0, 100.0))),
        lambda: _shows(machine, feed),
    )


def _shows(machine: DirectoryMachine, feed: Feed) -> None:
    """A piece of a view that nobody asked for."""
    offset, total = feed.pick((0, 1, 3584)), feed.pick((1, 3600, 10**6))
    body = feed.block() or b"\0"
    machine.says(feed.byte() % 6, ViewPart(offset, total, bytes(64), body))


PROMISES: tuple[Callable[[DirectoryMachine], None], ...] = (
    DirectoryMachine.an_epoch_never_goes_back,
    DirectoryMachine.round_ones_roster_never_changes_and_has_enough_peers,
    DirectoryMachine.a_settled_manifest_never_changes,
    DirectoryMachine.a_name_has_one_key_and_a_key_one_name_for_ever,
    DirectoryMachine.who_was_revoked_stays_so,
    DirectoryMachine.nobody_is_ready_before_the_manifest_is_settled,
    DirectoryMachine.every_table_is_bounded,
)
