"""A node's side of membership: join, settle the manifest, get ready, keep the lease. SANS-IO.

    WAITING -> JOINING -> [ UNSETTLED -> ] SETTLED -> READY ... -> over

It always knows the one message that is due next and repeats it until the coordinator's answer has
made another one due; so a lost message, a lost link and a restarted coordinator are one case.
Before the first admission it gives up after a while; after it, a coordinator that is gone is told
once and never ends the run. Knows no socket and no clock.
"""

import logging
from dataclasses import dataclass, replace
from typing import assert_never

from protocol.errors import ConfigError, RemoteProtocolError
from protocol.ids import RunId
from protocol.manifest import Manifest, differences, model_differences
from protocol.wire.codec import COORDINATOR
from protocol.wire.membership_effects import (
    CoordinatorBack,
    CoordinatorLost,
    Effect,
    GaveUp,
    Refused,
    Send,
    Settled,
    SplitView,
    Unsettled,
    ViewChanged,
    WakeAt,
)
from protocol.wire.messages import (
    VIEW_PART_BYTES,
    Admitted,
    CoordinatorMessage,
    Epoch,
    Join,
    Lease,
    Leave,
    Lift,
    NewToken,
    Ready,
    Refuse,
    Renew,
    Revoke,
    Settle,
    ShowView,
    SignedView,
    Told,
    View,
    ViewPart,
    Withdraw,
    is_newer,
)
from protocol.wire.signing import open_view

__all__ = [
    "CoordinatorBack",
    "CoordinatorLost",
    "Effect",
    "GaveUp",
    "Membership",
    "Patience",
    "Refused",
    "Send",
    "Settled",
    "SplitView",
    "Unsettled",
    "ViewChanged",
    "WakeAt",
]

_log = logging.getLogger(__name__)

MAX_UNANSWERED = 2  # messages, before a member registers again
# A wrong key cannot be told from nobody: the handshake fails without a word.
NEVER_CONNECTED = (
    "nothing answers there: it is not running, a firewall is in the way, or its key is another "
    "than the join string's"
)
ASSUMED_LEASE_S = 15.0  # of a coordinator that is yet to be heard
MIN_LEASE_S = 1.0  # whatever a coordinator says, so that it cannot make a node spin


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    give_up_s: float = 60.0  # for the first admission, > 0
    answer_s: float = 2.0  # before a message is repeated for the first time; then it doubles
    answer_max_s: float = 10.0  # and stays there, >= answer_s
    cached_s: float = 5.0  # for the first admission, where there is a view to go on from without it


class Membership:
    """One node in one run, by the coordinator's word."""

    def __init__(
        self,
        join: Join,
        *,
        sign_key: bytes,
        where: str,
        patience: Patience | None = None,
        cached: SignedView | None = None,
    ) -> None:
        """Prepare; nothing is said before `connected`.

        Args:
            join: what this node asks for; sent again after every reconnect.
            sign_key: the coordinator's, from the join string; other signatures are worth nothing.
            where: the coordinator's address, for texts only.
            patience: the defaults suit a LAN.
            cached: a view of a run that has begun, in which this node takes part: where nobody
                answers, it goes on by that.

        Raises:
            ConfigError: the wishes are no manifest.
        """
        self._cached = cached
        self._join = join
        self._wishes = Manifest.from_options(join.wishes)
        self._sign_key = sign_key
        self._where = where
        self._patience = patience or Patience()
        # Spreads the repeats of many nodes that lost the same coordinator; no generator needed.
        self._pace = 0.75 + join.instance[0] / 512

        self._run: RunId | None = None
        self._options: Manifest | None = None  # settled
        self._completed: Manifest | None = None  # ours, to settle
        self._asked = False  # whether Unsettled was told
        self._ready: Ready | None = None
        self._view: View | None = None
        self._signed: SignedView | None = None  # the same, as it was signed
        self._split_at: Epoch | None = None  # the last split view that was told
        self._round_no, self._phase = 0, "lobby"

        self._connected = False
        self._admitted = False  # on this connection
        self._lost = False
        self._over = False
        self._lease_s = 0.0  # 0 until the first admission
        self._tries = 0  # of the message that is due
        self._trouble = NEVER_CONNECTED
        self._started_at_s = self._heard_at_s = self._speak_at_s = 0.0

    @property
    def view(self) -> View | None:
        return self._view

    @property
    def is_over(self) -> bool:
        return self._over

    # -- what happens -----------------------------------------------------------------------

    def start(self, now_s: float) -> tuple[Effect, ...]:
        self._started_at_s = now_s
        self._speak_at_s = now_s + self._patience.answer_s
        return self._rest(now_s)

    def connected(self, now_s: float) -> tuple[Effect, ...]:
        if self._over:
            return ()
        self._connected, self._admitted = True, False
        self._trouble = "it is connected but does not answer: it may speak another wire version"
        self._tries = 0
        return (*self._speak(now_s), *self._rest(now_s))

    def disconnected(self, now_s: float, reason: str = "") -> tuple[Effect, ...]:
        """The link is down and the transport goes on trying.

        Args:
            now_s: the instant.
            reason: what the transport knows of it, for the text of `GaveUp` or `CoordinatorLost`.
        """
        if self._over:
            return ()
        self._trouble = reason or ("the link broke" if self._connected else NEVER_CONNECTED)
        self._connected = self._admitted = False
        return self._rest(now_s)

    def receive(self, header: bytes, now_s: float) -> tuple[Effect, ...]:
        """Take one message; what cannot be read or believed is logged and dropped."""
        if self._over:
            return ()
        try:
            message = COORDINATOR.decode(header)
            self._tries = 0
            effects = self._take(message, now_s)
        except (RemoteProtocolError, ConfigError) as error:
            _log.warning("dropped a message of the coordinator where=%s: %s", self._where, error)
            return self._rest(now_s)
        if self.is_over:
            return effects
        if self._lost:
            self._lost = False
            effects = (CoordinatorBack(), *effects)
        self._heard_at_s = now_s
        return (*effects, *self._rest(now_s))

    def overhear(self, signed: SignedView) -> tuple[Effect, ...]:
        """Take a view that a neighbour passes on; it says nothing of the coordinator's health.

        Raises:
            RemoteProtocolError: the coordinator did not sign it, or it is of another run.
        """
        if self._over or self._run is None:
            return ()
        return self._take_view(signed)

    def wake(self, now_s: float) -> tuple[Effect, ...]:
        if self._over:
            return ()
        if self._cached is not None and now_s >= self._started_at_s + self._cached_s:
            return (*self._go_on(now_s), *self._rest(now_s))
        if not self._lease_s and now_s >= self._started_at_s + self._patience.give_up_s:
            self._over = True
            return (GaveUp(self._given_up()),)
        effects: list[Effect] = []
        if self._lease_s and not self._lost and now_s >= self._heard_at_s + self._lease_s:
            self._lost = True
            silence_s = now_s - self._heard_at_s
            effects.append(
                CoordinatorLost(f"{self._where} silent for {silence_s:.0f} s: {self._trouble}")
            )
        if now_s >= self._speak_at_s:
            effects.extend(self._repeat(now_s))
        return (*effects, *self._rest(now_s))

    def settle(self, options: Manifest, now_s: float) -> tuple[Effect, ...]:
        """Answer `Unsettled` with the whole manifest; if another node was first, its one stands."""
        self._completed = options
        return (*self._advance(now_s), *self._rest(now_s))

    def ready(self, schema: bytes, init: bytes, now_s: float) -> tuple[Effect, ...]:
        """Answer `Settled` with the digests of the model: of its layout, and of its start."""
        self._ready = Ready(schema, init)
        if not self._admitted and self._view is not None and self._view.schema:
            odd = model_differences((schema, init), (self._view.schema, self._view.init))
            if odd:  # as the coordinator would say, were it there
                self._over = True
                return (Refused(odd),)
        return (*self._advance(now_s), *self._rest(now_s))

    def report(self, round_no: int, phase: str, now_s: float) -> tuple[Effect, ...]:
        """Keep what the next Renew tells: a hint for people's eyes."""
        self._round_no, self._phase = round_no, phase
        return ()

    def leave(self, reason: str, now_s: float) -> tuple[Effect, ...]:
        """Say goodbye, once, unheard or not."""
        if self._over:
            return ()
        self._over = True
        return (Send(Leave(reason)),) if self._admitted else ()

    # -- what to say next --------------------------------------------------------------------

    def _due(self) -> CoordinatorMessage:
        """The message that the coordinator has yet to answer, or a Renew when there is none."""
        if not self._admitted:
            return replace(self._join, seen=self._view.epoch) if self._view else self._join
        if self._options is None and self._completed is not None:
            return Settle(self._completed.options())
        if self._ready is not None and self._options is not None and not self._is_ready_there():
            return self._ready
        epoch = self._view.epoch if self._view else Epoch(0, 0)
        return Renew(epoch, self._round_no, self._phase)

    def _is_ready_there(self) -> bool:
        members = self._view.members if self._view else ()
        return any(m.name == self._join.name and m.state == "ready" for m in members)

    def _advance(self, now_s: float) -> tuple[Effect, ...]:
        """Say at once what has become due, unless that is only a Renew."""
        if self._over or not self._connected or not self._admitted:
            return ()
        self._tries = 0
        if isinstance(self._due(), Renew):
            self._speak_at_s = now_s + self._lease_s / 3
            return ()
        return self._speak(now_s)

    def _repeat(self, now_s: float) -> tuple[Effect, ...]:
        if self._admitted and self._tries >= MAX_UNANSWERED:
            self._admitted = False  # it does not know us (any more): register again
            self._tries = 0
        return self._speak(now_s)

    def _speak(self, now_s: float) -> tuple[Effect, ...]:
        message = self._due()
        self._tries += 1
        if isinstance(message, Renew):
            self._speak_at_s = now_s + self._lease_s / 3
        else:
            wait_s = self._patience.answer_s * 2 ** min(self._tries - 1, 20)
            self._speak_at_s = now_s + min(wait_s, self._patience.answer_max_s) * self._pace
        return (Send(message),) if self._connected else ()

    def _rest(self, now_s: float) -> tuple[Effect, ...]:
        """Be woken at the earliest of what may be due."""
        if self._over:
            return ()
        at_s = self._speak_at_s
        if self._cached is not None:
            at_s = min(at_s, self._started_at_s + self._cached_s)
        if not self._lease_s:
            at_s = min(at_s, self._started_at_s + self._patience.give_up_s)
        elif not self._lost:
            at_s = min(at_s, self._heard_at_s + self._lease_s)
        return (WakeAt(max(at_s, now_s)),)

    @property
    def _cached_s(self) -> float:
        return min(self._patience.cached_s, self._patience.give_up_s)

    def _go_on(self, now_s: float) -> tuple[Effect, ...]:
        """Nobody has answered: take part by the view that was kept, until the coordinator is back.

        It is registered with as soon as it answers, under the same name and key.
        """
        cached, self._cached = self._cached, None
        if cached is None:
            return ()
        try:
            view = open_view(cached, self._sign_key).view
        except RemoteProtocolError as error:
            _log.warning("dropped the view that was kept where=%s: %s", self._where, error)
            return ()
        options = Manifest.from_options(view.options)
        odd = differences(self._wishes, options)
        if odd:
            self._over = True
            return (Refused("; ".join(odd)),)
        self._run, self._options = RunId(view.run), options
        self._lost, self._lease_s, self._heard_at_s = True, ASSUMED_LEASE_S, now_s
        number = f"{view.epoch.incarnation}.{view.epoch.counter}"
        waited_s = now_s - self._started_at_s
        lost = CoordinatorLost(
            f"{self._where} has not answered in {waited_s:.0f} s: {self._trouble}; going on by the "
            f"view of epoch {number}, which was kept"
        )
        told = self._take_view(cached)
        return (lost, *told, *(() if self._over else (Settled(self._run, options),)))

    def _given_up(self) -> str:
        waited_s = self._patience.give_up_s
        return f"no coordinator at {self._where}: tried for {waited_s:g} s; {self._trouble}"

    # -- what the coordinator says -------------------------------------------------------------

    def _take(self, message: CoordinatorMessage, now_s: float) -> tuple[Effect, ...]:
        match message:
            case Admitted():
                return self._take_admitted(message, now_s)
            case SignedView() if self._run is None:
                raise RemoteProtocolError("a view before Admitted")
            case SignedView():
                return self._take_view(message)
            case ShowView(offset):
                return self._show_view(offset, now_s)
            case Lease() if self._run is None:
                raise RemoteProtocolError("a Lease before Admitted")
            case Lease():
                self._lease_s = max(message.lease_s, MIN_LEASE_S)
                return ()
            case Refuse():
                self._over = True
                return (Refused(message.reason),)
            case (
                Join() | Settle() | Ready() | Renew() | Leave()
                | Revoke() | NewToken() | Withdraw() | Lift() | Told() | ViewPart()
            ):  # fmt: skip
                raise RemoteProtocolError(f"a coordinator says no {type(message).__name__}")
            case _:
                assert_never(message)

    def _take_admitted(self, message: Admitted, now_s: float) -> tuple[Effect, ...]:
        if self._run is not None and message.run != self._run:
            raise RemoteProtocolError("the coordinator leads another run now")
        options = Manifest.from_options(message.options)
        effects = list(self._take_view(message.view, run=RunId(message.run)))
        self._cached = None
        self._run = RunId(message.run)
        self._admitted = True
        self._lease_s = max(message.lease_s, MIN_LEASE_S)
        self._trouble = "it is connected but does not answer"
        if message.settled and self._options is None:
            odd = differences(self._wishes, options)
            if odd:
                self._over = True
                return (*effects, Send(Leave("asked for other options")), Refused("; ".join(odd)))
            self._options = options
            effects.append(Settled(self._run, options))
        elif not message.settled and self._options is None and not self._asked:
            self._asked = True
            effects.append(Unsettled(options))
        return (*effects, *self._advance(now_s))

    def _show_view(self, offset: int, now_s: float) -> tuple[Effect, ...]:
        """Show a coordinator that has lost its journal what it had said to us."""
        if self._signed is None:
            raise RemoteProtocolError("the coordinator asks for a view that it never sent")
        body, signature = self._signed.body, self._signed.signature
        if offset >= len(body):
            return self._speak(now_s)
        chunk = body[offset : offset + VIEW_PART_BYTES]
        return (Send(ViewPart(offset, len(body), signature, chunk)),)

    def _take_view(self, signed: SignedView, run: RunId | None = None) -> tuple[Effect, ...]:
        """Believe a view that the coordinator signed, if it is newer than the one we have.

        Two views of one epoch are the work of two coordinators with one key. All who hear of both
        take the one whose bytes are greater, so that they agree until there is a newer one.
        """
        opened = open_view(signed, self._sign_key)
        view, signed = opened.view, opened.signed
        if view.run != (run or self._run):
            raise RemoteProtocolError("a view of another run")
        told: list[Effect] = []
        if self._view is not None and self._signed is not None:
            newest = self._view.epoch
            is_split = view.epoch == newest and signed.body != self._signed.body
            if is_split and self._split_at != newest:
                self._split_at = newest
                told.append(SplitView(newest))
            is_ours_greater = self._signed.body > signed.body
            if not is_newer(view.epoch, newest) and (not is_split or is_ours_greater):
                return tuple(told)
        self._view, self._signed = view, signed
        told.append(ViewChanged(view, signed))
        if any(m.name == self._join.name and m.state == "revoked" for m in view.members):
            self._over = True
            told.append(Refused("this node was revoked, by the coordinator's signed word"))
        return tuple(told)
