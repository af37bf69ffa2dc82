"""What the faults that are given in rounds do: a pure function of tables, seed, names and round.

A fault in rounds does not act on messages but on exchanges, and a failed exchange fails at once:
every node that has the same tables and the same seed comes to the same answer, in whatever shell
and at whatever pace it runs. Kinds that act so: partition, heal, loss, random, leave, join. The
others, where they are given in rounds, befall a peer while it plays those rounds, and are carried
out by whoever runs it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from hashlib import blake2b
from itertools import count

from peer.faults.table import Fault, Kind, with_ends
from protocol.wire.shelf import MAX_KEPT, SNAPSHOTS_KEPT

__all__ = ["NO_FAULTS", "FaultPlan", "agreed", "draw"]

NO_FAULTS = "none"

_PLAN = {Kind.PARTITION, Kind.LOSS, Kind.RANDOM, Kind.JOIN, Kind.LEAVE}  # heal ends a partition
MAX_LOOKED_AT = 2000  # rounds from which the number of results that are kept is found


def draw(seed: int, *words: str | int) -> float:
    """Draw a number in [0, 1), evenly, the same for the same seed and words."""
    text = "/".join(map(str, (seed, "fault", *words)))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest()) / 2.0**64


def agreed(faults: Iterable[Fault]) -> str:
    """What all nodes of a run must have alike of these faults: a line of its manifest.

    That is what a `FaultPlan` answers from, however the file is written; what befalls messages and
    processes is each node's own.

    Returns:
        `none`, or how many there are and a digest of 8 bytes.
    """
    told = {_canonical(part) for fault in with_ends(faults) for part in _parts(fault)}
    if not told:
        return NO_FAULTS
    name = blake2b("\n".join(sorted(told)).encode(), digest_size=8).hexdigest()
    return f"{len(told)} in rounds ({name})"


def _parts(fault: Fault) -> Iterable[Fault]:
    """A table of a plan, peer by peer where each joins or leaves by itself; nothing of others."""
    if not fault.span.in_rounds or fault.kind not in _PLAN:
        return ()
    if fault.kind in {Kind.JOIN, Kind.LEAVE}:
        return [replace(fault, peers=(name,)) for name in fault.peers]
    return (fault,)


def _canonical(fault: Fault) -> str:
    """One of them as text; its number counts where something is drawn by it."""
    drawn = fault.kind in {Kind.RANDOM, Kind.LOSS}
    links = sorted((link.first, link.second, link.one_way) for link in fault.links)
    groups = sorted({tuple(sorted(group)) for group in fault.groups})
    parts = (fault.number if drawn else 0, fault.rate, fault.rejoin, fault.peers, groups, links)
    return f"{fault.kind} {fault.span.at_round} {fault.span.until_round} {parts!r}"


class FaultPlan:
    """Answers for one run. It remembers what it has drawn, and nothing else."""

    def __init__(self, faults: Iterable[Fault] = (), *, seed: int = 0) -> None:
        """Plan.

        Args:
            faults: of the run, in the order of the file.
            seed: the run's.
        """
        self._seed = seed
        in_rounds = [fault for fault in with_ends(faults) if fault.span.in_rounds]
        self._partitions = [fault for fault in in_rounds if fault.kind is Kind.PARTITION]
        self._losses = [fault for fault in in_rounds if fault.kind is Kind.LOSS]
        self._randoms = [fault for fault in in_rounds if fault.kind is Kind.RANDOM]
        self._first = _rounds_of(in_rounds, Kind.JOIN)
        self._left = _rounds_of(in_rounds, Kind.LEAVE)
        self._chains: dict[tuple[int, str], list[bool]] = {}  # absent, from the table's first round

    def __bool__(self) -> bool:
        """Is there anything in it at all?"""
        return bool(self._partitions or self._losses or self._randoms or self._first or self._left)

    # -- who is there -----------------------------------------------------------------------------

    def first_round(self, peer: str) -> int:
        """The round in which this peer begins."""
        return self._first.get(peer, 1)

    def last_round(self, peer: str, rounds: int) -> int:
        """The last round that this peer plays, of a run of so many."""
        return min(rounds, self._left.get(peer, rounds + 1) - 1)

    def is_member(self, peer: str, round_no: int) -> bool:
        """Has it joined by this round, and not left before it?"""
        left = self._left.get(peer)
        return self.first_round(peer) <= round_no and (left is None or round_no < left)

    @property
    def schedules(self) -> bool:
        """Does it say of anybody when they join or leave?"""
        return bool(self._first or self._left)

    @property
    def scheduled(self) -> frozenset[str]:
        """Who joins or leaves by it."""
        return frozenset({*self._first, *self._left})

    def is_scheduled(self, peer: str) -> bool:
        """Does the plan say when it joins or leaves?"""
        return peer in self._first or peer in self._left

    def absence(self, peer: str, round_no: int, *, is_relay: bool = False) -> str:
        """Why this peer does not play this round; empty if it does.

        Args:
            peer: of whom.
            round_no: of which round, >= 1.
            is_relay: a relay is absent only by a table that names it.
        """
        if round_no < self.first_round(peer):
            return f"joins in round {self.first_round(peer)}"
        if not self.is_member(peer, round_no):
            return f"left before round {self._left[peer]}"
        for fault in self._randoms:
            named = peer in fault.peers or (not fault.peers and not is_relay)
            if named and fault.span.has_round(round_no) and self._is_drawn(fault, peer, round_no):
                return f"absent from round {round_no}"
        return ""

    def _is_drawn(self, fault: Fault, peer: str, round_no: int) -> bool:
        first = fault.span.at_round or 1
        chain = self._chains.setdefault((fault.number, peer), [])
        for number in count(first + len(chain)):
            if number > round_no:
                break
            chance = fault.rate
            if fault.rejoin is not None and chain and chain[-1]:
                chance = 1.0 - fault.rejoin
            chain.append(draw(self._seed, fault.number, peer, number) < chance)
        return chain[round_no - first]

    # -- who hears whom ---------------------------------------------------------------------------

    def cut(
        self, asker: str, answerer: str, *, round_no: int, asked: int, is_relay: bool = False
    ) -> str:
        """Why this exchange fails; empty if it does not.

        Args:
            asker: who asks.
            answerer: who is asked.
            round_no: the round that the asker plays: partitions and losses go by it.
            asked: the round whose result it asks for: absence goes by it.
            is_relay: the answerer is one.
        """
        if asked >= 1 and (why := self.absence(answerer, asked, is_relay=is_relay)):
            return why
        if not self.is_member(answerer, round_no):
            return f"left before round {self._left[answerer]}"
        for fault in self._partitions:
            if fault.span.has_round(round_no) and fault.carries(asker, answerer):
                return f"partition in round {round_no}"
        for fault in self._losses:
            if not fault.span.has_round(round_no) or not fault.carries(answerer, asker):
                continue
            if draw(self._seed, fault.number, asker, answerer, round_no) < fault.rate:
                return f"lost in round {round_no}"
        return ""

    def waits(self, asker: str, answerer: str, round_no: int, lag: int = 1) -> bool:
        """Does the asker play this round, and get something of the answerer in it?"""
        if self.absence(asker, round_no):
            return False
        return not self.cut(asker, answerer, round_no=round_no, asked=round_no - lag)

    def results_kept(self, me: str, others: Iterable[str], rounds: int) -> int:
        """How many of its newest results a peer must serve, so that none that is asked is gone.

        Without faults whoever is asked cannot be two rounds ahead: it needs the asker's own
        results. A cut lets it run ahead, until it is next to hear of the asker.
        """
        kept = SNAPSHOTS_KEPT
        if not self:
            return kept
        for other in others:
            for number in range(1, min(rounds, MAX_LOOKED_AT)):
                if not self.waits(other, me, number + 1):
                    continue
                later = range(number + 2, min(rounds, number + MAX_KEPT) + 1)
                heard = next((r for r in later if self.waits(me, other, r)), later.stop)
                kept = max(kept, heard - number)
        return min(kept, MAX_KEPT)

    def is_over(self, asker: str, answerer: str, from_round: int, last_round: int) -> bool:
        """Will the asker never again, from a round to the last, get anything of the answerer?"""
        rounds = range(from_round, last_round + 1)
        return not any(self.waits(asker, answerer, number) for number in rounds)


def _rounds_of(faults: Iterable[Fault], kind: Kind) -> Mapping[str, int]:
    return {
        peer: fault.span.at_round or 1
        for fault in faults
        if fault.kind is kind
        for peer in fault.peers
    }
