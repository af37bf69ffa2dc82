"""The world: the hosts, the ways between them, and the one agenda on which everything happens.

Deterministic: the same plan and seed give the same events in the same order. It raises `Stuck` when
nothing is left to happen and a peer is not over, and after any event that leaves a peer with
nothing to wait for.
"""

from collections.abc import Callable, Mapping

from peer.simulation.agenda import Agenda
from peer.simulation.coordinator_host import CoordinatorHost
from peer.simulation.peer_host import Begin, PeerHost
from peer.simulation.timing import Timing
from protocol.errors import KinfolkError
from protocol.ids import PeerId
from protocol.manifest import Manifest

__all__ = ["Stuck", "World"]


EVENTS_BETWEEN_SHOWS = 500


class Stuck(KinfolkError):  # noqa: N818 - what it is, not what was raised
    """Somebody waits for something that nobody will ever do: a bug of a machine."""


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
    ) -> None:
        self._agenda = Agenda()
        self.timing = timing
        self._hosts: dict[PeerId, PeerHost] = {}
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

    def add(self, host: PeerHost) -> None:
        """Let a peer start now."""
        self._hosts[host.me] = host
        self.later(0.0, host.start)
        self.later(self.timing.latency_s, lambda: self._connect_coordinator(host))

    def run(self, show: Callable[[], None]) -> None:
        """Play until every peer is over; `show` is called now and then.

        Raises:
            Stuck: a peer waits for nothing, or nothing is left to happen.
        """
        while self._playing():
            for _ in range(EVENTS_BETWEEN_SHOWS):
                if not self._agenda.step():
                    break
            else:
                show()
                continue
            if left := self._playing():
                raise Stuck(f"nothing is left to happen, and {', '.join(left)} are not over")

    def step(self) -> bool:
        """Let the next thing happen; False when there is none."""
        return self._agenda.step()

    def _playing(self) -> list[PeerId]:
        return sorted(name for name, host in self._hosts.items() if host.over is None)

    # -- what hosts may do ------------------------------------------------------------------------

    def now_s(self) -> float:
        return self._agenda.now_s()

    def later(self, delay_s: float, event: Callable[[], None]) -> None:
        self._agenda.at(self._agenda.now_s() + delay_s, event)

    def to_coordinator(self, me: PeerId, header: bytes) -> None:
        self._send(lambda: self.coordinator.receive(me, header))

    def dial(self, me: PeerId, other: PeerId) -> None:
        def connected() -> None:
            if other in self._hosts and self._hosts[other].over is None:
                self._tell(
                    me, lambda host: host.feed(host.node.link_connected(other, self.now_s()))
                )

        self._send(connected)

    def ask(self, me: PeerId, other: PeerId, header: bytes) -> None:
        self._send(lambda: self._tell(other, lambda host: host.asked(me, header)))

    def answer(self, me: PeerId, asker: PeerId, header: bytes) -> None:
        def said(host: PeerHost) -> None:
            host.feed(host.node.link_said(me, header, self.now_s()))

        self._send(lambda: self._tell(asker, said))

    def pull(self, me: PeerId, other: PeerId, digest: bytes, begin: Begin) -> None:
        def arrived() -> None:
            host = self._hosts.get(other)
            served = host.body_of(digest) if host is not None and host.over is None else None
            begin(served, "" if served is not None else "it is served no longer")

        self._send(arrived)

    # -- ways -----------------------------------------------------------------------------------

    def _send(self, event: Callable[[], None]) -> None:
        self.later(self.timing.latency_s, event)

    def _tell(self, name: PeerId, event: Callable[[PeerHost], None]) -> None:
        host = self._hosts.get(name)
        if host is None or host.over is not None:
            return
        event(host)
        if not host.waits:
            raise Stuck(
                f"{name} waits for nothing at {self.now_s():.3f} s, phase {host.node.phase}"
            )

    def _connect_coordinator(self, host: PeerHost) -> None:
        if self.coordinator.is_up:
            self._tell(host.me, lambda h: h.feed(h.node.coordinator_connected(self.now_s())))

    def _from_coordinator(self, name: PeerId, header: bytes) -> None:
        self._send(
            lambda: self._tell(
                name, lambda h: h.feed(h.node.coordinator_said(header, self.now_s()))
            )
        )
