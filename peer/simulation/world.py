"""The world: the hosts, the ways between them, and the one agenda on which everything happens.

Deterministic: the same plan and seed give the same events in the same order. It raises `Stuck` when
nothing is left to happen and a peer is not over, and after any event that leaves a peer with
nothing to wait for.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from peer.faults.table import Fault, Kind
from peer.simulation.agenda import Agenda
from peer.simulation.coordinator_host import CoordinatorHost
from peer.simulation.dialled import Dialled
from peer.simulation.fabric import Begin
from peer.simulation.peer_host import PeerHost
from peer.simulation.routes import Routes
from peer.simulation.script import Script, Stuck
from peer.simulation.timing import Timing, TimingTable
from peer.simulation.trouble import Moment, Trouble
from protocol.ids import PeerId
from protocol.manifest import Manifest

__all__ = ["World"]

_STARTED_AGAIN = {Kind.KILL, Kind.RELAY_DOWN}  # when they end
_STARTS = {Kind.JOIN, Kind.RESTART, Kind.RELAY_UP}  # when they begin
EVENTS_BETWEEN_SHOWS = 500
RETRY_S = 1.0  # between two attempts to connect, or to go on with a pull
GIVE_UP_S = 60.0  # on a pull of which nothing comes, as a real puller does


class World:
    """Time, and ways between hosts. Hosts are added, then `run` plays to the end."""

    def __init__(
        self,
        *,
        run_name: str,
        founders: int,
        options: Manifest,
        seed: int,
        timing: Timing,
        relays: int = 0,
        timings: TimingTable | None = None,
        script: Script | None = None,
    ) -> None:
        """Make an empty world with a coordinator.

        Args:
            run_name: of the run.
            founders: peers that the lobby waits for.
            options: pinned lines of the manifest.
            seed: of the run.
            timing: durations, of every peer that `timings` does not name.
            timings: durations peer by peer; None: `timing` for all.
            relays: how many relays the lobby waits for.
            script: what goes wrong; None: nothing.
        """
        self._agenda = Agenda()
        self.timing = timing
        self.timings = timings if timings is not None else TimingTable(default=timing)
        self._hosts: dict[PeerId, PeerHost] = {}
        self._routes = Routes()
        script = script if script is not None else Script()
        self._trouble = Trouble(script.faults, seed=seed)
        self._reborn = script.reborn
        self._relays = script.relays
        self._rounds: dict[str, int] = {}  # that each peer has begun, its newest
        self._reached = 0  # the newest round that anybody has begun
        self._done: set[tuple[int, str, str]] = set()  # deeds in rounds: table, peer, what
        self._to_come = 0  # hosts that will start later
        self._frozen: dict[PeerId, list[Callable[[], None]]] = {}  # what waits for each to thaw
        self._will_thaw: set[PeerId] = set()  # of these, whom an instant is to wake
        self._dialled = Dialled()
        self._arrivals: dict[tuple[str, str], float] = {}  # last on each way: none overtakes
        self.coordinator = CoordinatorHost(
            run_name=run_name,
            founders=founders,
            relays=relays,
            options=options,
            seed=seed,
            send=self._from_coordinator,
            later=self.later,
            now_s=self.now_s,
        )

    @property
    def hosts(self) -> Mapping[PeerId, PeerHost]:
        return self._hosts

    @property
    def frozen(self) -> frozenset[PeerId]:
        """Who is frozen now."""
        return frozenset(self._frozen)

    def add(self, host: PeerHost) -> None:
        """Let a peer start now."""
        self._hosts[host.me] = host
        wait_s = self._routes.open(host, self.now_s()) + self.timing.latency_s
        self.later(0.0, host.start)
        self.later(wait_s, lambda: self._connect_coordinator(host))

    def run(self, show: Callable[[], None]) -> None:
        """Play until every peer is over; `show` is called now and then.

        Raises:
            Stuck: a peer waits for nothing, or nothing is left to happen.
        """
        while self._is_playing():
            for _ in range(EVENTS_BETWEEN_SHOWS):
                if not self._is_playing() or not self._agenda.step():
                    break
            else:
                show()
                continue
            if self._agenda.is_empty and (left := self._playing()):
                raise Stuck(f"nothing is left to happen, and {', '.join(left)} are not over")

    def close(self) -> None:
        """Let go of the files of those who are not over: who is frozen to the end."""
        for host in self._hosts.values():
            if host.over is None:
                host.kill()

    def step(self) -> bool:
        """Let the next thing happen; False when there is none."""
        return self._agenda.step()

    def _playing(self) -> list[PeerId]:
        return sorted(n for n, host in self._hosts.items() if host.over is None and self._moves(n))

    def _is_playing(self) -> bool:
        return self._to_come > 0 or any(
            host.over is None and self._moves(name) for name, host in self._hosts.items()
        )

    def _moves(self, name: PeerId) -> bool:
        """It is not frozen, or it will thaw."""
        return name not in self._frozen or name in self._will_thaw

    # -- what hosts may do ------------------------------------------------------------------------

    def now_s(self) -> float:
        return self._agenda.now_s()

    def later(self, delay_s: float, event: Callable[[], None]) -> None:
        self._agenda.at(self._agenda.now_s() + delay_s, event)

    def when_awake(self, host: PeerHost, event: Callable[[], None]) -> None:
        """Let something happen at a host if it lives: now, or when it is no longer frozen."""
        if self._hosts.get(host.me) is not host or host.over is not None:
            return
        if host.me in self._frozen:
            self._frozen[host.me].append(lambda: self.when_awake(host, event))
            return
        event()
        if not host.waits:
            raise Stuck(
                f"{host.me} waits for nothing at {self.now_s():.3f} s, phase {host.node.phase}"
            )

    def to_coordinator(self, me: PeerId, header: bytes) -> None:
        route = self._routes.of(me)
        self.later(self.timing.latency_s, lambda: self.coordinator.receive(route, me, header))

    def opened(self, me: PeerId) -> None:
        """`me` answers from now on: whoever has dialled it gets through."""
        for asker in self._dialled.waiting(me):
            self._connect(asker, me)

    def dial(self, me: PeerId, other: PeerId) -> None:
        self._dialled.put(me, other, is_up=False)
        self._connect(me, other)

    def ask(self, me: PeerId, other: PeerId, header: bytes) -> None:
        if not self._breaks(me, other, (me, other)):
            self._send(me, other, header, lambda host, heard: host.asked(me, heard))

    def answer(self, me: PeerId, asker: PeerId, header: bytes) -> None:
        def said(host: PeerHost, heard: bytes) -> None:
            host.feed(host.node.link_said(me, heard, self.now_s()))

        if not self._breaks(me, asker, (asker, me)):
            self._send(me, asker, header, said)

    def pull(self, me: PeerId, other: PeerId, digest: bytes, begin: Begin) -> None:
        puller, until_s = self._hosts.get(me), self.now_s() + GIVE_UP_S

        def arrived() -> None:
            if self._trouble.is_cut(me, other, self._moment()) or other in self._frozen:
                if self.now_s() < until_s:
                    self.later(RETRY_S, arrived)
                else:
                    self._begin(puller, begin, f"nothing came for {GIVE_UP_S:.0f} s")
                return
            host = self._hosts.get(other)
            served = host.body_of(digest, me) if host is not None else None
            if puller is not None:
                reason = "" if served is not None else "it is served no longer"
                self.when_awake(puller, lambda: begin(served, reason))

        self.later(self._latency_s(me, other), arrived)

    def _begin(self, puller: PeerHost | None, begin: Begin, reason: str) -> None:
        if puller is not None:
            self.when_awake(puller, lambda: begin(None, reason))

    def carry(
        self,
        me: PeerId,
        other: PeerId,
        num_bytes: int,
        done: Callable[[], None],
        failed: Callable[[str], None],
    ) -> None:
        """Bring the bytes of a pull from `other` to `me`, then call one of the two."""
        puller, giver = self._hosts[me], self._hosts.get(other)
        mb_s = self.timings.between(me, other)[1]
        seconds = self._trouble.pull_s(other, me, num_bytes, mb_s, self._moment())
        until_s = self.now_s() + seconds + GIVE_UP_S

        def arrived() -> None:
            if giver is not self._hosts.get(other) or (giver is not None and giver.was_killed):
                self.when_awake(puller, lambda: failed("the connection broke"))
            elif giver is not None and giver.over is None and not giver.admits(me):
                self.when_awake(puller, lambda: failed("the connection was cut"))
            elif self._trouble.is_cut(other, me, self._moment()) or other in self._frozen:
                if self.now_s() < until_s:
                    self.later(RETRY_S, arrived)
                else:
                    self.when_awake(puller, lambda: failed(f"nothing came for {GIVE_UP_S:.0f} s"))
            elif self._trouble.is_spoilt(other, me, num_bytes, self._moment()):
                self.when_awake(puller, lambda: failed("a digest differs: changed on its way"))
            else:
                self.when_awake(puller, done)

        self.later(seconds, arrived)

    def slowness(self, me: PeerId) -> float:
        return self._trouble.slowness(me, self._moment())

    def began_round(self, me: PeerId, round_no: int) -> None:
        """`me` collects for this round: what is given in rounds befalls it now."""
        self._rounds[me] = round_no
        if self._trouble.began_s is None and round_no >= 1:
            self._trouble.began_s = self.now_s()
            self._schedule()
        self._reached = max(self._reached, round_no)
        self._do_in_rounds(me, round_no)

    # -- ways -----------------------------------------------------------------------------------

    def _moment(self) -> Moment:
        return Moment(self.now_s(), lambda name: self._rounds.get(name, 0))

    def _latency_s(self, sender: str, receiver: str) -> float:
        extra_s = self._trouble.extra_s(sender, receiver, self._moment())
        return self.timings.between(sender, receiver)[0] + extra_s

    def _send(
        self,
        sender: PeerId,
        receiver: PeerId,
        header: bytes,
        deliver: Callable[[PeerHost, bytes], None],
    ) -> None:
        """Send a message; none overtakes an earlier one, for a connection keeps their order."""
        heard = self._trouble.changed(sender, receiver, header, self._moment())
        at_s = self.now_s() + self._latency_s(sender, receiver)
        at_s = max(at_s, self._arrivals.get((sender, receiver), 0.0))
        self._arrivals[sender, receiver] = at_s

        def arrived() -> None:
            if not self._trouble.is_cut(sender, receiver, self._moment()):
                self._tell(receiver, lambda host: deliver(host, heard))

        self._agenda.at(at_s, arrived)

    def _breaks(self, sender: PeerId, receiver: PeerId, way: tuple[PeerId, PeerId]) -> bool:
        """Draw: is this message lost? A stream loses none: its connection breaks instead."""
        if not self._trouble.is_lost(sender, receiver, self._moment()):
            return False
        self.hang_up(way[1], way[0])
        return True

    def hang_up(self, me: PeerId, asker: PeerId) -> None:
        if self._dialled.is_up(asker, me):
            self._dialled.put(asker, me, is_up=False)
            self.later(0.0, lambda: self._down(asker, me))
            self._connect(asker, me)

    def _down(self, me: PeerId, other: PeerId) -> None:
        self._tell(me, lambda host: host.feed(host.node.link_disconnected(other, self.now_s())))

    def _connect(self, me: PeerId, other: PeerId) -> None:
        def arrived() -> None:
            host = self._hosts.get(other)
            if self._dialled.is_up(me, other) is not False:
                return
            if host is None or host.over is not None or not host.is_open:
                return  # it says when it is
            if not host.admits(me) or self._trouble.is_cut(me, other, self._moment()):
                self.later(RETRY_S, arrived)
                return
            self._dialled.put(me, other, is_up=True)
            self._tell(me, lambda host: host.feed(host.node.link_connected(other, self.now_s())))

        self.later(self._latency_s(me, other), arrived)

    def _tell(self, name: PeerId, event: Callable[[PeerHost], None]) -> None:
        host = self._hosts.get(name)
        if host is not None:
            self.when_awake(host, lambda: event(host))

    # -- the coordinator --------------------------------------------------------------------------

    def _connect_coordinator(self, host: PeerHost) -> None:
        if self.coordinator.is_up:
            self._tell(host.me, lambda h: h.feed(h.node.coordinator_connected(self.now_s())))

    def _from_coordinator(self, route: bytes, header: bytes) -> bool:
        """Send on the connection of one process; False when it is broken."""
        host = self._routes.holder(route)
        if host is None:
            return False

        def arrived() -> None:
            self.when_awake(
                host, lambda: host.feed(host.node.coordinator_said(header, self.now_s()))
            )

        self.later(self.timing.latency_s, arrived)
        return True

    def _stop_coordinator(self) -> None:
        if not self.coordinator.is_up:
            return
        self.coordinator.stop()
        reason = "the connection is refused or broke"
        for name in self._playing():
            self._tell(
                name, lambda h: h.feed(h.node.coordinator_disconnected(reason, self.now_s()))
            )

    def _start_coordinator(self) -> None:
        if self.coordinator.is_up:
            return
        self.coordinator.start()
        for name in self._playing():
            host = self._hosts[name]
            self.later(self.timing.latency_s, lambda host=host: self._connect_coordinator(host))  # type: ignore[misc]

    # -- faults that something is to be done for ---------------------------------------------------

    def _schedule(self) -> None:
        """Round 1 has begun: put what is given in seconds on the agenda."""
        for fault in self._trouble.deeds:
            span, names = fault.span, self._whom(fault)
            if span.at_s is None:
                continue
            self._to_come += len(names) if fault.kind in _STARTS else 0
            self.later(span.at_s, partial(self._begin_fault, fault, names))
            if span.until_s is not None:
                self._to_come += len(names) if fault.kind in _STARTED_AGAIN else 0
                self.later(span.until_s, partial(self._end_fault, fault, names))

    def _do_in_rounds(self, me: PeerId, round_no: int) -> None:
        """Begin what befalls this peer in its new round; end what lasted until anybody's."""
        for fault in self._trouble.deeds:
            span, names = fault.span, self._whom(fault)
            if span.at_round is None:
                continue
            is_own = bool(names) and fault.kind not in _STARTS
            is_due = span.has_round(round_no) and (not is_own or me in names)
            if is_due and self._once(fault, me if is_own else "", "begin"):
                whom = (me,) if is_own else names
                self.later(0.0, partial(self._begin_fault, fault, whom))
            end = span.until_round
            if end is not None and round_no >= end and self._once(fault, "", "end"):
                self._to_come += len(names) if fault.kind in _STARTED_AGAIN else 0
                self.later(0.0, partial(self._end_fault, fault, names))

    def _whom(self, fault: Fault) -> tuple[PeerId, ...]:
        of_relays = fault.kind in {Kind.RELAY_DOWN, Kind.RELAY_UP}
        return fault.peers or (self._relays if of_relays else ())

    def _once(self, fault: Fault, name: str, what: str) -> bool:
        key = (fault.number, name, what)
        is_first = key not in self._done
        self._done.add(key)
        return is_first

    def _begin_fault(self, fault: Fault, names: Sequence[PeerId]) -> None:
        if fault.kind is Kind.COORDINATOR_DOWN:
            self._stop_coordinator()
        elif fault.kind is Kind.COORDINATOR_UP:
            self._start_coordinator()
        for name in names:
            self._befall(fault, name)

    def _befall(self, fault: Fault, name: PeerId) -> None:
        match fault.kind:
            case Kind.KILL | Kind.RELAY_DOWN:
                self._kill(name)
            case Kind.RELAY_UP | Kind.RESTART | Kind.JOIN:
                if fault.kind is Kind.RESTART:
                    self._kill(name)
                self._to_come += 1 if fault.span.in_rounds else 0
                self._start(name)
            case Kind.LEAVE:
                reason = "left, as the faults say"
                self._tell(name, lambda h: h.feed(h.node.stop(reason, self.now_s())))
            case Kind.FREEZE if name in self._hosts and self._hosts[name].over is None:
                self._frozen.setdefault(name, [])
                if fault.span.until_s is not None:
                    self._will_thaw.add(name)
            case _:
                pass  # it is over already, or nothing of a peer's

    def _end_fault(self, fault: Fault, names: Sequence[PeerId]) -> None:
        if fault.kind is Kind.COORDINATOR_DOWN:
            self._start_coordinator()
        for name in names:
            if fault.kind in _STARTED_AGAIN:
                self._start(name)
            elif fault.kind is Kind.FREEZE:
                self._thaw(name)

    def _kill(self, name: PeerId) -> None:
        """It is gone between two instants; whoever was connected notices."""
        host = self._hosts.get(name)
        self._frozen.pop(name, None)
        if host is None or host.over is not None:
            return
        host.kill()
        for asker in self._dialled.broken_by(name):
            self._down(asker, name)

    def _start(self, name: PeerId) -> None:
        """Start a peer that was killed, or is late; not where others have finished, and none plays.

        A launch is over then too.
        """
        self._to_come -= 1
        old = self._hosts.get(name)
        if old is not None and not old.was_killed:
            return
        apart = {name, *self._relays}
        others = {other: host for other, host in self._hosts.items() if other not in apart}
        plays = any(h.over is None and self._moves(n) for n, h in others.items())
        finished = any(h.over is not None and not h.was_killed for h in others.values())
        if (finished and not plays) or self._reborn is None:
            return
        self.add(self._reborn(name))

    def _thaw(self, name: PeerId) -> None:
        self._will_thaw.discard(name)
        for event in self._frozen.pop(name, []):
            event()
