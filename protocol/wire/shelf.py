"""The answering side of the control conversation, for all who ask. No clock, no socket, no thread.

Holds the manifests of the last two snapshots and the questions that stand. A question is answered
at once by an Offer, or by NotYet now and every two seconds until the snapshot is there. Greeting
leaves no state behind: a question is judged by its run and by who asks, so a peer that restarts
needs no memory of who had greeted it.
"""

from dataclasses import dataclass
from typing import TypeAlias, assert_never

from protocol.errors import LocalProtocolError, RemoteProtocolError
from protocol.ids import PeerId
from protocol.wire.digest import digest
from protocol.wire.link_effects import WakeAt
from protocol.wire.messages import (
    MAX_MANIFEST_BYTES,
    WIRE_VERSION,
    Ask,
    Bye,
    Cancel,
    Credit,
    Data,
    Done,
    DoneAck,
    Epoch,
    Err,
    Get,
    Hello,
    NotYet,
    Offer,
    Part,
    PeerMessage,
    Refuse,
    Seen,
    SignedView,
    Welcome,
    is_newer,
)
from protocol.wire.signing import sign_snapshot

__all__ = ["MAX_KEPT", "SNAPSHOTS_KEPT", "Effect", "PeerDone", "Reply", "Shelf", "Status"]

SNAPSHOTS_KEPT = 2  # of each part: the newest, and the one before it
MAX_KEPT = 16  # where somebody lags behind: each is a file of the model's size
NOT_YET_EVERY_S = 2.0
SHOW_EVERY_S = 1.0  # a view on one route: it may be large, and who asks is small
ROUTES_PER_PEER = 4  # a peer has one control connection; the others died without our knowing


@dataclass(frozen=True, slots=True)
class Reply:
    route: bytes
    message: PeerMessage


@dataclass(frozen=True, slots=True)
class PeerDone:
    """This peer needs nothing more of us. It may be told again."""

    peer: PeerId


Effect: TypeAlias = Reply | WakeAt | PeerDone


@dataclass(frozen=True, slots=True)
class Status:
    """How far this node is, for those who wait."""

    at_round: int
    phase: str
    fraction: float = 0.0  # of the phase
    eta_s: float = 0.0  # until its result; 0 when it cannot tell


@dataclass(frozen=True, slots=True)
class _Offered:
    manifest: bytes
    signature: bytes
    base: bytes  # name of the result that a step goes on from


class Shelf:
    """Feed it what happens; carry out what it returns, in order."""

    def __init__(
        self,
        *,
        run: bytes,
        name: PeerId,
        schema: bytes,
        sign_secret: bytes,
    ) -> None:
        """Begin with nothing to offer.

        Args:
            run: 16 bytes.
            name: ours.
            schema: digest of what is shared, 32 bytes.
            sign_secret: Ed25519, to vouch for what is offered.
        """
        self._run = run
        self._name = name
        self._schema = schema
        self._sign_secret = sign_secret
        self._status = Status(at_round=0, phase="lobby")
        self._offered: dict[Part, dict[int, _Offered]] = {}  # by round, oldest first
        self._routes: dict[bytes, PeerId] = {}  # last heard of last
        self._questions: dict[bytes, Ask] = {}  # by route
        self._remind_at_s = 0.0
        self._view: tuple[Epoch, SignedView] | None = None
        self._shown_at_s: dict[bytes, float] = {}  # the view, by route

    @property
    def newest(self) -> int:
        """The newest round whose result it offers; 0 while it has none."""
        return self._newest(Part.RESULT)

    def _newest(self, part: Part) -> int:
        return max(self._offered.get(part, ()), default=0)

    def status(self, status: Status) -> None:
        """From now on, tell this to those who wait."""
        self._status = status

    def view(self, epoch: Epoch, signed: SignedView) -> None:
        """From now on, pass this view on to whoever has an older one."""
        self._view = epoch, signed

    def publish(
        self,
        round_no: int,
        manifest: bytes,
        part: Part = Part.RESULT,
        base: bytes = b"",
        *,
        kept: int = SNAPSHOTS_KEPT,
    ) -> tuple[Effect, ...]:
        """Offer a snapshot, first to those who wait for it; the newest of its part are kept.

        A step is to be published before the result that it leads to: that is offered at once.

        Args:
            round_no: of which round.
            manifest: encoded.
            part: which part of the round.
            base: of a step, the name of the result that it goes on from.
            kept: how many of them are.

        Raises:
            LocalProtocolError: it is older than the newest, or differs from it.
        """
        offered, newest = self._offered.setdefault(part, {}), self._newest(part)
        before = offered.get(round_no)
        if round_no < newest or (before is not None and before.manifest != manifest):
            raise LocalProtocolError(
                f"round {round_no} cannot be published after round {newest}, or twice"
            )
        signature = sign_snapshot(self._sign_secret, digest(manifest))
        offered[round_no] = _Offered(manifest, signature, base)
        for old in sorted(offered)[:-kept]:
            del offered[old]
        answered = [(route, ask) for route, ask in self._questions.items() if self._has(ask)]
        for route, _ in answered:
            del self._questions[route]
        return tuple(Reply(route, self._offer(ask)) for route, ask in answered)

    def receive(
        self, route: bytes, peer: PeerId, message: PeerMessage, now_s: float
    ) -> tuple[Effect, ...]:
        """Take one message.

        Args:
            route: where answers go.
            peer: whom the authenticated key belongs to.
            message: theirs.
            now_s: the instant.

        Raises:
            RemoteProtocolError: it is no message of one who asks.
        """
        self._remember(route, peer)
        match message:
            case Hello():
                differs = self._differs(message, peer)
                if differs:
                    return (Reply(route, Refuse(differs)),)
                return (Reply(route, Welcome(self._name, self.newest)),)
            case Ask(run) | Done(run) | Seen(run) if run != self._run:
                return (Reply(route, Refuse(self._other_run(run))),)
            case Ask():
                return self._ask(route, message, now_s)
            case Done():
                self._questions.pop(route, None)
                return Reply(route, DoneAck(self._run)), PeerDone(peer)
            case Seen(_, epoch):
                return self._pass_on(route, epoch, now_s)
            case Bye():
                self.gone(route)
                return ()
            case (
                Welcome() | Refuse() | NotYet() | Offer() | DoneAck()
                | Get() | Credit() | Cancel() | Data() | Err() | SignedView()
            ):  # fmt: skip
                raise RemoteProtocolError(f"{type(message).__name__} from {peer}, which asks here")
            case _:
                assert_never(message)

    def wake(self, now_s: float) -> tuple[Effect, ...]:
        """Time has passed: tell those who wait how far we are."""
        if not self._questions:
            return ()
        if now_s < self._remind_at_s:
            return (WakeAt(self._remind_at_s),)
        replies = [Reply(route, self._not_yet(ask)) for route, ask in self._questions.items()]
        return *replies, self._remind(now_s)

    def gone(self, route: bytes) -> None:
        """This route leads nowhere any more."""
        self._routes.pop(route, None)
        self._questions.pop(route, None)
        self._shown_at_s.pop(route, None)

    def forget(self, peer: PeerId) -> None:
        """This peer was revoked: nothing more is sent to it."""
        for route in [route for route, known in self._routes.items() if known == peer]:
            self.gone(route)

    def leave(self, reason: str) -> tuple[Effect, ...]:
        """Say goodbye to everyone that was ever heard of."""
        replies = tuple(Reply(route, Bye(reason)) for route in self._routes)
        self._routes.clear()
        self._questions.clear()
        self._shown_at_s.clear()
        return replies

    def _pass_on(self, route: bytes, seen: Epoch, now_s: float) -> tuple[Effect, ...]:
        if self._view is None:
            return ()
        epoch, signed = self._view
        if not is_newer(epoch, seen) or now_s < self._shown_at_s.get(route, now_s):
            return ()
        self._shown_at_s[route] = now_s + SHOW_EVERY_S
        return (Reply(route, signed),)

    def _ask(self, route: bytes, ask: Ask, now_s: float) -> tuple[Effect, ...]:
        if self._has(ask):
            self._questions.pop(route, None)
            return (Reply(route, self._offer(ask)),)
        is_first = not self._questions
        self._questions[route] = ask
        reply = Reply(route, self._not_yet(ask))
        return (reply, self._remind(now_s)) if is_first else (reply, WakeAt(self._remind_at_s))

    def _remind(self, now_s: float) -> WakeAt:
        self._remind_at_s = now_s + NOT_YET_EVERY_S
        return WakeAt(self._remind_at_s)

    def _has(self, ask: Ask) -> bool:
        return ask.part in self._offered and self._newest(ask.part) >= ask.round_no

    def _offer(self, ask: Ask) -> Offer:
        kept = self._offered[ask.part]
        round_no = ask.round_no if ask.round_no in kept else self._newest(ask.part)
        offered, step = kept[round_no], b""
        if ask.part is Part.RESULT and ask.holds:
            step = self._step(round_no, ask.holds, room=MAX_MANIFEST_BYTES - len(offered.manifest))
        return Offer(self._run, round_no, ask.attempt, offered.manifest, offered.signature, step)

    def _step(self, round_no: int, holds: bytes, *, room: int) -> bytes:
        """Manifest of the step to this round's result from that one; empty if there is none."""
        step = self._offered.get(Part.STEP, {}).get(round_no)
        if step is None or step.base != holds or len(step.manifest) > room:
            return b""
        return step.manifest

    def _not_yet(self, ask: Ask) -> NotYet:
        now = self._status
        return NotYet(
            self._run, ask.round_no, ask.attempt, now.at_round, now.phase, now.fraction, now.eta_s
        )

    def _differs(self, hello: Hello, peer: PeerId) -> str:
        """The first line of a greeting that does not fit; empty if all do."""
        if hello.version != WIRE_VERSION:
            return f"wire version {hello.version}, {self._name} speaks {WIRE_VERSION}"
        if hello.run != self._run:
            return self._other_run(hello.run)
        if hello.sender != peer:
            return f"name {hello.sender}, but the key is {peer}'s"
        if hello.schema != self._schema:
            return (
                f"schema {hello.schema.hex()[:12]}, {self._name} has {self._schema.hex()[:12]}: "
                "the models differ in names, shapes or dtypes of what is shared"
            )
        return ""

    def _other_run(self, run: bytes) -> str:
        return f"run {run.hex()[:12]}, {self._name} is in {self._run.hex()[:12]}"

    def _remember(self, route: bytes, peer: PeerId) -> None:
        is_new = self._routes.pop(route, None) is None
        self._routes[route] = peer
        if not is_new:
            return
        of_peer = [known for known, name in self._routes.items() if name == peer]
        for old in of_peer[:-ROUTES_PER_PEER]:
            self.gone(old)
