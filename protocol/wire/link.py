"""The asking side of the control conversation with one neighbour. No clock, no socket, no thread.

DOWN --connected--> GREETING --Welcome--> UP --Done, DoneAck--> FINISHED
  ^                  |    ^                |
  |               Refuse  +----silence-----+
  +--disconnected--  v
                  RESTING  (also after Bye, or a breach of the rules: greets again after a while)

One question may stand. It is put again after every reconnect, with a new attempt number (an answer
to the old connection is lost), and at least every `reask_s`. An Offer closes it, whatever its
attempt; what answers no standing question is dropped, and so is what answers an earlier one, for
another part: the two have crossed, once for each question. What keeps it open, NotYet, is life.

Each input returns effects to carry out in order. While anything is outstanding they end with one
WakeAt, which replaces the earlier ones; while disconnected the transport owes the next event; UP
without a question it is our own turn. A wake before its time is harmless.
"""

from collections import Counter
from enum import Enum
from typing import assert_never

from protocol.errors import RemoteProtocolError
from protocol.ids import PeerId
from protocol.wire.codec import decode_document
from protocol.wire.digest import digest
from protocol.wire.layout import schema_digest
from protocol.wire.link_effects import (
    Answered,
    Effect,
    Finished,
    LinkDown,
    LinkUp,
    Refused,
    Send,
    Step,
    ViewPassed,
    Waiting,
    WakeAt,
)
from protocol.wire.messages import (
    Ask,
    Bye,
    Cancel,
    Credit,
    Data,
    Done,
    DoneAck,
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
    SnapshotManifest,
    Welcome,
)
from protocol.wire.signing import signed_snapshot

__all__ = [
    "Answered",
    "Effect",
    "Finished",
    "Link",
    "LinkDown",
    "LinkUp",
    "Refused",
    "Send",
    "Step",
    "ViewPassed",
    "Waiting",
    "WakeAt",
]

DONE_EVERY_S = 2.0  # until DoneAck


class _Stage(Enum):
    DOWN = "down"
    GREETING = "greeting"
    UP = "up"
    RESTING = "resting"
    FINISHED = "finished"


class Link:
    """Feed it what happens; carry out what it returns, in order."""

    def __init__(
        self,
        hello: Hello,
        *,
        neighbour: PeerId,
        sign_key: bytes,
        coded: bytes = b"",
        stepped: bytes = b"",
        silence_s: float = 10.0,
        reask_s: float = 20.0,
    ) -> None:
        """Begin disconnected, with nothing to ask.

        Args:
            hello: how we greet.
            neighbour: the name that the server key belongs to.
            sign_key: the neighbour's, from the view; what it did not sign is not taken.
            coded: digest of the schema that results have in the run's codec; plain ones are taken
                too.
            stepped: digest of the schema that steps have in the run's codec; empty where it has
                none.
            silence_s: without a message while one is due, before the link counts as down, > 0.
            reask_s: until a standing question is put again, > 0.
        """
        self._hello = hello
        self._neighbour = neighbour
        self._sign_key = sign_key
        self._coded = coded
        self._stepped = stepped
        self._silence_s = silence_s
        self._reask_s = reask_s
        self._stage = _Stage.DOWN
        self._refusal = ""
        self._is_told_down = True  # nobody believes that it is up
        self._asked: int | None = None  # round of the standing question
        self._part = Part.RESULT  # of which snapshot of that round
        self._asked_for: dict[Part, int] = {}  # the newest attempt at which each part was asked for
        self._owed: Counter[Part] = Counter()  # how many of its questions have no answer yet
        self._holds = b""  # name of what we have of theirs, for them to step from
        self._said = b""  # which one we named at the newest attempt
        self._attempt = 0
        self._is_done = False
        self._heard_at_s = 0.0
        self._since_s = 0.0  # words are due since then, or it rests since then
        self._put_at_s = 0.0  # the question, or Done, was last sent

    @property
    def heard_at_s(self) -> float:
        """When the neighbour last showed life; 0 if it never has."""
        return self._heard_at_s

    @property
    def is_up(self) -> bool:
        return self._stage is _Stage.UP

    @property
    def is_finished(self) -> bool:
        return self._stage is _Stage.FINISHED

    def connected(self, now_s: float) -> tuple[Effect, ...]:
        if self._stage is _Stage.FINISHED:
            return ()
        self._heard_at_s = now_s
        self._is_told_down = False
        return self._greet(now_s)

    def disconnected(self, now_s: float) -> tuple[Effect, ...]:
        if self._stage in (_Stage.FINISHED, _Stage.DOWN):
            return ()
        self._stage = _Stage.DOWN
        self._refusal = ""
        return self._tell_down("connection lost")

    def ask(
        self, round_no: int, now_s: float, part: Part = Part.RESULT, holds: bytes = b""
    ) -> tuple[Effect, ...]:
        """Put the one question: their `part` of `round_no`. An earlier question is withdrawn.

        Args:
            round_no: or a newer one.
            now_s: the instant.
            part: of which snapshot of that round.
            holds: name of a result of theirs that is here, so that a step from it is enough.
        """
        self._asked, self._part = round_no, part
        self._holds = holds if self._stepped else b""
        return self._begin_waiting(now_s)

    def finish(self, now_s: float) -> tuple[Effect, ...]:
        """We need nothing more of them: say so until they have heard it."""
        self._asked = None
        self._is_done = True
        return self._begin_waiting(now_s)

    def fail(self, reason: str, now_s: float) -> tuple[Effect, ...]:
        """They broke the rules: rest, then greet again. The standing question stays."""
        if self._stage in (_Stage.FINISHED, _Stage.DOWN):
            return ()
        return self._rest(reason, now_s)

    def wake(self, now_s: float) -> tuple[Effect, ...]:
        """Time has passed: greet again, ask again, or tell that they are silent."""
        due_s = self._due_s()
        if due_s is None or now_s < due_s:
            return self._wake_at()
        if self._stage is _Stage.RESTING:
            return self._greet(now_s)
        if now_s >= self._silent_at_s():
            silence = f"silent for {now_s - self._heard_at_s:.0f} s"
            return *self._tell_down(silence), *self._greet(now_s)
        return self._put_question(now_s)

    def receive(self, message: PeerMessage, now_s: float) -> tuple[Effect, ...]:
        """Take one message of theirs.

        Raises:
            RemoteProtocolError: it breaks the rules; call `fail`.
        """
        if self._stage in (_Stage.FINISHED, _Stage.DOWN):
            return ()  # the tail of a connection that is gone
        self._heard_at_s = now_s
        match message:
            case Welcome():
                return self._welcome(message, now_s)
            case Refuse(reason):
                return self._refused(reason, now_s)
            case NotYet(run, round_no):
                is_ours = run == self._hello.run and round_no == self._asked
                return (Waiting(message), *self._wake_at()) if is_ours else self._wake_at()
            case Offer():
                return self._offer(message)
            case DoneAck(run):
                return self._acknowledged(run)
            case Bye(reason):
                return self._rest(reason, now_s, said_bye=True)
            case SignedView():
                return ViewPassed(message), *self._wake_at()
            case (
                Hello() | Ask() | Get() | Credit() | Cancel() | Data() | Err() | Done() | Seen()
            ):  # fmt: skip
                raise RemoteProtocolError(
                    f"{type(message).__name__} from {self._neighbour}, which answers here"
                )
            case _:
                assert_never(message)

    def _welcome(self, welcome: Welcome, now_s: float) -> tuple[Effect, ...]:
        if welcome.sender != self._neighbour:
            raise RemoteProtocolError(f"{self._neighbour} calls itself {welcome.sender}")
        if self._stage is _Stage.UP:
            return self._wake_at()
        self._stage = _Stage.UP
        self._refusal = ""
        self._is_told_down = False
        return LinkUp(welcome), *self._begin_waiting(now_s)

    def _refused(self, reason: str, now_s: float) -> tuple[Effect, ...]:
        is_news = reason != self._refusal
        self._refusal = reason
        self._is_told_down = True  # Refused says it
        rest = self._rest(f"refused: {reason}", now_s)
        return (Refused(reason), *rest) if is_news else rest

    def _offer(self, offer: Offer) -> tuple[Effect, ...]:
        if offer.attempt > self._attempt:
            raise RemoteProtocolError(f"answer to attempt {offer.attempt} of {self._attempt}")
        if self._asked is None or offer.run != self._hello.run or offer.round_no < self._asked:
            return self._wake_at()  # an answer that came too late, to a question put twice
        manifest = decode_document(SnapshotManifest, offer.manifest)
        has_crossed = manifest.part is not self._part and self._answers(manifest.part, offer)
        self._check(manifest, offer, manifest.part if has_crossed else self._part)
        name = digest(offer.manifest)
        if not signed_snapshot(self._sign_key, name, offer.signature):
            raise RemoteProtocolError(f"manifest of {self._neighbour}: the signature does not fit")
        if has_crossed:
            self._owed[manifest.part] -= 1
            return self._wake_at()
        step = self._step(manifest, offer)
        self._asked = None
        self._owed[self._part] -= 1
        return Answered(offer.round_no, manifest, name, step), *self._wake_at()

    def _step(self, manifest: SnapshotManifest, offer: Offer) -> Step | None:
        """What leads to the offered result from the one that we hold, if they have that."""
        if not offer.step:
            return None
        step = decode_document(SnapshotManifest, offer.step)
        for line, seen, due in (
            ("sender", step.sender, manifest.sender),
            ("part", step.part, Part.STEP),
            ("run", step.run.hex(), manifest.run.hex()),
            ("round", step.round_no, manifest.round_no),
            ("schema", schema_digest(step.tensors).hex(), self._stepped.hex()),
        ):
            if seen != due:
                raise RemoteProtocolError(
                    f"manifest of a step of {self._neighbour}: {line} {seen}, not {due}"
                )
        if offer.attempt == self._attempt and not (self._said and step.base == self._said):
            raise RemoteProtocolError(
                f"a step of {self._neighbour} goes on from {step.base.hex()[:12] or 'nothing'},"
                f" we hold {self._said.hex()[:12] or 'nothing'}"
            )
        if not self._holds or step.base != self._holds:
            return None  # an answer to what we held when we asked before
        return Step(step, digest(offer.step))

    def _answers(self, part: Part, offer: Offer) -> bool:
        """Can it be the answer to a question for that part, put at this attempt or later?

        Each question is answered once, so that nobody has us check one offer for ever.
        """
        return 0 < offer.attempt <= self._asked_for.get(part, 0) and self._owed[part] > 0

    def _check(self, manifest: SnapshotManifest, offer: Offer, part: Part) -> None:
        for line, seen, due in (
            ("sender", manifest.sender, self._neighbour),
            ("part", manifest.part, part),
            ("run", manifest.run.hex(), self._hello.run.hex()),
            ("round", manifest.round_no, offer.round_no),
            ("schema", *self._schemas(manifest)),
        ):
            if seen != due:
                raise RemoteProtocolError(
                    f"manifest of {self._neighbour}: {line} {seen}, not {due}"
                )

    def _schemas(self, manifest: SnapshotManifest) -> tuple[str, str]:
        """What was seen, and what the run has; only results have the run's."""
        seen = schema_digest(manifest.tensors)
        is_free = manifest.part is not Part.RESULT or seen == self._coded
        return seen.hex(), seen.hex() if is_free else self._hello.schema.hex()

    def _acknowledged(self, run: bytes) -> tuple[Effect, ...]:
        if run != self._hello.run or not self._is_done:
            return self._wake_at()
        self._stage = _Stage.FINISHED
        return (Finished(),)

    def _greet(self, now_s: float) -> tuple[Effect, ...]:
        self._stage = _Stage.GREETING
        self._since_s = now_s
        return Send(self._hello), *self._wake_at()

    def _begin_waiting(self, now_s: float) -> tuple[Effect, ...]:
        if self._stage is not _Stage.UP:
            return ()  # put when it is
        self._since_s = now_s
        return self._put_question(now_s)

    def _put_question(self, now_s: float) -> tuple[Effect, ...]:
        self._put_at_s = now_s
        if self._asked is not None:
            self._attempt += 1
            self._said = self._holds
            self._asked_for[self._part] = self._attempt
            self._owed[self._part] += 1
            ask = Ask(self._hello.run, self._part, self._asked, self._attempt, self._holds)
            return Send(ask), *self._wake_at()
        if self._is_done:
            return Send(Done(self._hello.run)), *self._wake_at()
        return ()

    def _rest(self, reason: str, now_s: float, *, said_bye: bool = False) -> tuple[Effect, ...]:
        self._stage = _Stage.RESTING
        self._since_s = now_s
        return *self._tell_down(reason, said_bye=said_bye), *self._wake_at()

    def _tell_down(self, reason: str, *, said_bye: bool = False) -> tuple[Effect, ...]:
        if self._is_told_down:
            return ()
        self._is_told_down = True
        return (LinkDown(reason, said_bye),)

    def _wake_at(self) -> tuple[Effect, ...]:
        due_s = self._due_s()
        return () if due_s is None else (WakeAt(due_s),)

    def _due_s(self) -> float | None:
        """The next instant at which something is to be done; None while nothing is outstanding."""
        match self._stage:
            case _Stage.DOWN | _Stage.FINISHED:
                return None
            case _Stage.RESTING:
                return self._since_s + self._reask_s
            case _Stage.GREETING:
                return self._silent_at_s()
            case _Stage.UP if self._asked is not None:
                return min(self._silent_at_s(), self._put_at_s + self._reask_s)
            case _Stage.UP if self._is_done:
                return min(self._silent_at_s(), self._put_at_s + DONE_EVERY_S)
            case _Stage.UP:
                return None
            case _:
                assert_never(self._stage)

    def _silent_at_s(self) -> float:
        return max(self._heard_at_s, self._since_s) + self._silence_s
