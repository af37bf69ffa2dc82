"""Who is a member, and by whose word. SANS-IO: callers bring bytes, keys and the time.

Owns the book of members, their leases and the settling of the manifest. Must not know sockets,
files, or anything of a model but two digests of it.
"""

import logging
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from coordinator.administration import Order, carry_out, shut_out
from coordinator.admission import REVOKED, reason_against, taken_over
from coordinator.book import UNKNOWN_INSTANCE, Book, Entry
from coordinator.bulletin import Bulletin
from coordinator.gate import Gate
from coordinator.limits import Bounded
from coordinator.rebuilding import Showing, knows, merge
from coordinator.refusals import Offence
from coordinator.sessions import Session, Sessions
from coordinator.tokens import token_with
from protocol.errors import ConfigError, RemoteProtocolError
from protocol.ids import PeerId
from protocol.manifest import Manifest, conflicts, model_differences
from protocol.wire.codec import COORDINATOR
from protocol.wire.fields import as_text
from protocol.wire.messages import (
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
)
from protocol.wire.signing import open_view, sign_public

__all__ = ["Directory", "Effect", "Reply", "Save", "WakeAt"]

_log = logging.getLogger(__name__)

MAX_SHOWINGS = 32  # views on their way at a time, at most 1 MB each
MAX_DISPLACED = 4096  # connections of superseded processes
MAX_SUPERSEDED = 16  # processes of one member that another took over from
MAX_REASON_CHARS = 400  # of a Refuse
SAVE_HINTS_S = 10.0  # how stale the rounds in the journal may get


@dataclass(frozen=True, slots=True)
class Reply:
    route: bytes
    message: CoordinatorMessage


@dataclass(frozen=True, slots=True)
class Save:
    """Write the book down before any Reply of the same list leaves."""


@dataclass(frozen=True, slots=True)
class WakeAt:
    at_s: float


Effect: TypeAlias = Reply | Save | WakeAt


class Directory:
    """The members of one run."""

    def __init__(
        self,
        book: Book,
        *,
        sign_secret: bytes,
        lease_s: float,
        now_s: float,
        operator: bytes = b"",
        since_1970_s: Callable[[], float] = lambda: math.inf,
    ) -> None:
        """Open the book; its members have one lease to say that they are still there.

        Args:
            book: changed in place; `incarnation` is this start's already.
            sign_secret: Ed25519, for the views.
            lease_s: how long a member may be silent, > 0.
            now_s: the instant.
            operator: CURVE key of whoever may give orders; none may, unless given.
            since_1970_s: for tokens with a date; without it, all of those are over.
        """
        self._book = book
        self._operator = operator
        self._since_1970_s = since_1970_s
        self._lease_s = lease_s
        self._bulletin = Bulletin(book, sign_secret=sign_secret)
        self._sign_key = sign_public(sign_secret)
        self._showings: Bounded[bytes, Showing] = Bounded(MAX_SHOWINGS)  # by route
        self._rebuilt_at_s: float | None = None  # when a lost book is taken for whole
        self._expiry_s = {e.name: now_s + lease_s for e in book.entries.values() if not _is_out(e)}
        self._sessions = Sessions(remembered=MAX_DISPLACED)
        self._gate = Gate()
        self._admitted: Admitted | None = None  # the newest: the same one goes to many
        self._saved_at_s = now_s
        self._hints_changed = False

    @property
    def view(self) -> View:
        return self._bulletin.view

    @property
    def epoch(self) -> Epoch:
        return self._bulletin.epoch

    @property
    def dropped(self) -> Mapping[str, int]:
        """How many messages were dropped or refused, by cause."""
        return self._gate.dropped

    def sizes(self) -> Mapping[str, int]:
        """How many items each table holds, for the test that all of them are bounded."""
        return {
            "sessions": len(self._sessions),
            "displaced": self._sessions.num_displaced,
            "keys": self._gate.num_keys,
        }

    # -- what happens -----------------------------------------------------------------------

    def receive(
        self, route: bytes, key: bytes, header: bytes, now_s: float, *, has_payload: bool = False
    ) -> tuple[Effect, ...]:
        """Take one message.

        Args:
            route: where answers go.
            key: the sender's, which the transport has authenticated.
            header: its bytes.
            now_s: the instant.
            has_payload: whether more came with it; no message of a node has more.
        """
        if has_payload:
            self._gate.drop("garbage", key, "a payload")
            return tuple(self._rest(now_s))
        return (*self._take(route, key, header, now_s), *self._rest(now_s))

    def gone(self, route: bytes) -> None:
        """Forget a connection that the transport could not send on any more."""
        self._sessions.close(route)

    def offended(self, offence: Offence, now_s: float) -> tuple[Effect, ...]:
        """Remember a key that the transport has shut out, so that the next start refuses it too."""
        if offence.key == self._operator:  # heard again: who else could lift it?
            _log.warning("a connection that seemed the operator's is cut: %s", offence.reason)
            return ()
        _log.warning("%s", shut_out(self._book, offence, self._since_1970_s()))
        # A book that knows no member yet must not be taken for the journal that was lost.
        return () if self._book.lost else (self._save(now_s),)

    def wake(self, now_s: float) -> tuple[Effect, ...]:
        """Let leases run out and send the view where it is due."""
        saved: tuple[Effect, ...] = ()
        if self._rebuilt_at_s is not None and now_s >= self._rebuilt_at_s:
            self._rebuilt_at_s, self._book.lost = None, False
            self._begin_leases(now_s)
            _log.warning("the book is rebuilt with %d members", len(self._book.entries))
            saved = (self._save(now_s),)
        return (*saved, *self._expire(now_s), *self._rest(now_s))

    def _expire(self, now_s: float) -> Iterator[Effect]:
        over = [name for name, at_s in self._expiry_s.items() if at_s <= now_s]
        for name in over:
            del self._expiry_s[name]
            self._book.entries[name].lost = True
            _log.info("lease ran out name=%s", name)
        if over:
            yield self._changed(now_s)

    def _rest(self, now_s: float) -> Iterator[Effect]:
        """Send the view around if it is due, and say when to be woken."""
        due_at_s = self._bulletin.due_at_s
        if due_at_s is not None and due_at_s <= now_s:
            behind = [s for s in self._sessions if s.seen != self._bulletin.epoch]
            yield from [self._show(session) for session in behind]
            self._bulletin.sent(len(behind), now_s)
            due_at_s = None
        others_s = (due_at_s, self._rebuilt_at_s)
        times_s = [*self._expiry_s.values(), *(at_s for at_s in others_s if at_s is not None)]
        if times_s:
            yield WakeAt(min(times_s))

    def _take(self, route: bytes, key: bytes, header: bytes, now_s: float) -> Iterator[Effect]:
        if not self._gate.admits(key, now_s):
            return
        try:
            message = COORDINATOR.decode(header)
        except RemoteProtocolError as error:
            self._showings.discard(route)
            self._gate.drop("garbage", key, str(error))
            return
        if isinstance(message, ViewPart):
            yield from self._take_part(route, key, message, now_s)
            return
        self._showings.discard(route)
        session, displaced = self._sessions.at(route), self._sessions.displaced_at(route)
        if key == self._operator and isinstance(message, Revoke | NewToken | Withdraw | Lift):
            yield from self._obey(route, message, now_s)
        elif isinstance(message, Join):
            yield from self._join(route, key, message, now_s)
        elif self._book.lost:
            self._gate.drop("too early", key, "the journal is lost, the book is being rebuilt")
        elif session is not None:
            yield from self._hear(session, message, now_s)
        elif displaced is not None:
            yield self._refuse(route, displaced, taken_over(displaced))
        else:
            self._gate.drop("not joined", key, type(message).__name__)

    def _hear(
        self, session: Session, message: CoordinatorMessage, now_s: float
    ) -> Iterator[Effect]:
        match message:
            case Settle():
                yield from self._settle(session, message, now_s)
            case Ready():
                yield from self._ready(session, message, now_s)
            case Renew():
                yield from self._renew(session, message, now_s)
            case Leave():
                yield self._part(session, message.reason, now_s)
            case (
                Join() | Admitted() | Lease() | SignedView() | Refuse()
                | Revoke() | NewToken() | Withdraw() | Lift() | Told() | ShowView() | ViewPart()
            ):  # fmt: skip
                self._gate.drop("out of place", session.entry.curve_key, type(message).__name__)
            case _:
                assert_never(message)

    # -- what a node says --------------------------------------------------------------------

    def _join(self, route: bytes, key: bytes, join: Join, now_s: float) -> Iterator[Effect]:
        entry = self._book.entries.get(PeerId(join.name))
        is_member = entry is not None and entry.curve_key == key
        if not is_member and not self._gate.admits_stranger(key, now_s):
            return
        if not knows(self._book, self._bulletin.epoch, join.seen):
            self._showings[route] = Showing()
            yield Reply(route, ShowView(0))
            return
        if self._book.lost:  # nobody new before the members that there were
            self._gate.drop("too early", key, "the journal is lost, the book is being rebuilt")
            return
        reason = reason_against(self._book, join, key, self._since_1970_s())
        if reason is not None:
            yield self._refuse(route, join.name, reason)
            return
        before = entry and (entry.member(), entry.instance)
        entry = self._return(entry, join) if entry else self._enrol(join, key)
        self._expiry_s[entry.name] = now_s + self._lease_s
        session = self._sessions.open(entry, route)
        if before != (entry.member(), entry.instance):
            _log.info("joined name=%s state=%s address=%s", entry.name, entry.state, entry.address)
            yield self._changed(now_s)
        yield self._admit(session)

    def _enrol(self, join: Join, key: bytes) -> Entry:
        entry = Entry(
            name=PeerId(join.name),
            role=join.role,
            address=join.address,
            curve_key=key,
            sign_key=join.sign_key,
            instance=join.instance,
        )
        token = token_with(self._book.tokens, join.token)
        if token is not None:
            token.used += 1
            entry.token = token.name
        self._book.entries[entry.name] = entry
        return entry

    def _return(self, entry: Entry, join: Join) -> Entry:
        """Take a known member back: after a cut or our own restart, or as a new process."""
        if entry.instance == UNKNOWN_INSTANCE:
            entry.instance = join.instance
        elif entry.instance != join.instance:
            self._sessions.displace(entry.name)
            entry.superseded = (*entry.superseded, entry.instance)[-MAX_SUPERSEDED:]
            entry.instance = join.instance
            # Its model is yet to be built; to the others it is one that is lost for a while.
            was_there = bool(self._book.founding) and not entry.left
            entry.returning = was_there and (entry.ready or entry.returning)
            entry.ready = False
        entry.address = join.address
        entry.lost = entry.left = False
        return entry

    def _take_part(
        self, route: bytes, key: bytes, part: ViewPart, now_s: float
    ) -> Iterator[Effect]:
        showing = self._showings.get(route)
        if showing is None:
            self._gate.drop("out of place", key, "ViewPart")
            return
        try:
            signed = showing.take(part)
            view = open_view(signed, self._sign_key).view if signed is not None else None
        except RemoteProtocolError as error:
            self._showings.discard(route)
            self._gate.drop("garbage", key, str(error))
            return
        self._gate.refund(key)  # it said what it was asked to
        if view is None:
            yield Reply(route, ShowView(len(showing.body)))
            return
        self._showings.discard(route)
        if not knows(self._book, self._bulletin.epoch, view.epoch):  # another may have been faster
            try:
                merge(self._book, view)
            except ConfigError as error:
                yield self._refuse(route, "", str(error))
                return
            yield from self._merged(view, now_s)
        yield Reply(route, ShowView(len(showing.body)))

    def _merged(self, view: View, now_s: float) -> Iterator[Effect]:
        """Go on with what a member has shown; a lost book waits for a newer one for a lease."""
        _log.warning("taken over from a view epoch=%s members=%d", view.epoch, len(view.members))
        if not self._book.lost:
            self._begin_leases(now_s)
        elif self._rebuilt_at_s is None:
            self._rebuilt_at_s = now_s + self._lease_s
        yield self._changed(now_s)

    def _begin_leases(self, now_s: float) -> None:
        """Give those who are new in the book a lease to say that they are still there."""
        for entry in self._book.entries.values():
            if _is_out(entry):
                self._expiry_s.pop(entry.name, None)
            elif not entry.lost:
                self._expiry_s.setdefault(entry.name, now_s + self._lease_s)

    def _settle(self, session: Session, settle: Settle, now_s: float) -> Iterator[Effect]:
        if self._book.settled:  # another node was first
            yield self._admit(session)
            return
        try:
            options = Manifest.from_options(settle.options)
            whole = options.over(self._book.options)
        except ConfigError as error:
            yield from self._turn_away(session, str(error), now_s)
            return
        odd = conflicts(options, self._book.options)
        if odd:
            yield from self._turn_away(session, "; ".join(odd), now_s)
            return
        self._book.options, self._book.settled = whole, True
        _log.info("settled by=%s options=%d", session.entry.name, len(whole))
        yield self._save(now_s)
        yield from [self._admit(waiting) for waiting in self._sessions]

    def _ready(self, session: Session, ready: Ready, now_s: float) -> Iterator[Effect]:
        book, entry = self._book, session.entry
        if not book.settled:
            self._gate.drop("out of place", entry.curve_key, "Ready before the manifest is settled")
            return
        if not book.schema:
            book.schema, book.init = ready.schema, ready.init
        odd = model_differences((ready.schema, ready.init), (book.schema, book.init))
        if odd:
            yield from self._turn_away(session, odd, now_s)
            return
        before = entry.state
        entry.ready, entry.returning = True, False
        self._extend(entry, now_s)
        if entry.state != before:
            yield self._changed(now_s)
        else:  # said twice: the view that told it got lost
            yield self._show(session)

    def _renew(self, session: Session, renew: Renew, now_s: float) -> Iterator[Effect]:
        entry = session.entry
        before = entry.state
        self._hints_changed |= entry.round_no != renew.round_no
        entry.round_no = renew.round_no
        self._extend(entry, now_s)
        if entry.state != before:
            yield self._changed(now_s)
        elif self._hints_changed and now_s >= self._saved_at_s + SAVE_HINTS_S:
            yield self._save(now_s)
        yield Reply(session.route, Lease(self._lease_s, self._bulletin.epoch))
        if renew.epoch != self._bulletin.epoch:
            yield self._show(session)

    # -- what the operator says ----------------------------------------------------------------

    def _obey(self, route: bytes, order: Order, now_s: float) -> Iterator[Effect]:
        if self._book.lost:
            yield Reply(route, Refuse("the journal is lost: wait until a member shows its view"))
            return
        try:
            done = carry_out(self._book, order, self._since_1970_s())
        except ConfigError as error:
            yield Reply(route, Refuse(as_text(error)))
            return
        _log.info("ordered: %s", done)
        if isinstance(order, Revoke):
            yield from self._cut_off(PeerId(order.name), now_s)
        else:
            yield self._save(now_s)
        yield Reply(route, Told(as_text(done)))

    def _cut_off(self, name: PeerId, now_s: float) -> Iterator[Effect]:
        """Tell a revoked member, and all others by a new view."""
        session = self._sessions.of(name)
        if session is not None:
            yield self._refuse(session.route, name, REVOKED)
            self._sessions.close(session.route)
        self._expiry_s.pop(name, None)
        yield self._changed(now_s)

    # -- what comes of it ----------------------------------------------------------------------

    def _extend(self, entry: Entry, now_s: float) -> None:
        self._expiry_s[entry.name] = now_s + self._lease_s
        entry.lost = False

    def _part(self, session: Session, reason: str, now_s: float) -> Effect:
        entry = session.entry
        _log.info("left name=%s reason=%r", entry.name, reason)
        self._sessions.close(session.route)
        self._expiry_s.pop(entry.name, None)
        entry.left, entry.lost = True, False
        return self._changed(now_s)

    def _turn_away(self, session: Session, reason: str, now_s: float) -> Iterator[Effect]:
        yield self._refuse(session.route, session.entry.name, reason)
        yield self._part(session, "refused", now_s)

    def _changed(self, now_s: float) -> Effect:
        """Count a change of the members; it is told to all, and never lost."""
        book = self._book
        if not book.founding and book.is_complete:
            book.founding = book.ready("peer")
            _log.info("founded peers=%d", len(book.founding))
        self._bulletin.changed(now_s)
        return self._save(now_s)

    def _save(self, now_s: float) -> Effect:
        self._saved_at_s, self._hints_changed = now_s, False
        return Save()

    def _show(self, session: Session) -> Effect:
        session.seen = self._bulletin.epoch
        return Reply(session.route, self._bulletin.sealed())

    def _admit(self, session: Session) -> Effect:
        session.seen = self._bulletin.epoch
        message = Admitted(
            run=self._book.run,
            settled=self._book.settled,
            options=self._book.options.options(),
            lease_s=self._lease_s,
            view=self._bulletin.sealed(),
        )
        if self._admitted is None or self._admitted != message:
            self._admitted = message
        return Reply(session.route, self._admitted)

    def _refuse(self, route: bytes, name: str, reason: str) -> Effect:
        self._gate.refused(name, reason)
        return Reply(route, Refuse(reason[:MAX_REASON_CHARS]))


def _is_out(entry: Entry) -> bool:
    """Nothing more is expected of it."""
    return entry.left or entry.revoked
