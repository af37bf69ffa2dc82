"""Whether faults can happen at all, and whether whoever they stop can ever go on. Pure.

A plan that would have everybody wait for what cannot happen is refused before anything is started,
and so is a fault that the run is over before.
"""

from collections.abc import Collection, Iterable

from peer.faults.table import Fault, Kind, late_names, with_ends
from protocol.errors import ConfigError

__all__ = ["check_feasible", "check_rounds"]

_STOPS = {Kind.KILL, Kind.FREEZE}  # those who are stopped begin no further round
_BEFALL = {Kind.KILL, Kind.RESTART, Kind.FREEZE}  # a process that must be there


def check_feasible(
    faults: Iterable[Fault], peers: Collection[str], *, rounds: int, founders: int | None
) -> None:
    """Refuse what would wait for ever.

    Args:
        faults: of the run, in the order of the file.
        peers: names of all peers, without relays.
        rounds: of the run.
        founders: peers that the lobby waits for, as a person typed it; None: all who are there.

    Raises:
        ConfigError: the lobby would never be complete, a fault befalls who has not joined yet, or
            one ends with a round that nobody is left to begin. The text says what was seen.
    """
    faults = tuple(faults)
    _check_lobby(faults, peers, founders)
    _check_lives(faults)
    _check_ends(faults, peers, rounds)


def check_rounds(faults: Iterable[Fault], rounds: int) -> None:
    """Refuse a fault that begins after the last round: nothing would come of it.

    One that begins in time may end whenever it likes.

    Args:
        faults: of the run, in the order of the file.
        rounds: of the run.

    Raises:
        ConfigError: it names the first of them, its round, and how many rounds there are.
    """
    for fault in faults:
        begins = fault.span.at_round
        if begins is not None and begins > rounds:
            raise ConfigError(
                f"[[fault]] {fault.number} ({fault.kind}) begins at round {begins}, and the run "
                f"has {rounds} round{'s' * (rounds != 1)}: it would never happen",
                hint=f"let it begin at round {rounds} or before, leave it out, or take run.rounds "
                f"= {begins} or more",
            )


def _check_lobby(faults: Iterable[Fault], peers: Collection[str], founders: int | None) -> None:
    if founders is not None and founders > len(peers):
        raise ConfigError(
            f"run.founders = {founders}, but there are {len(peers)} peers: the lobby would wait "
            "for ever",
            hint=f"from 1 to {len(peers)} may stand there; a relay is no founder",
        )
    late = [name for name in late_names(faults) if name in peers]
    there = len(peers) - len(late)
    if not there:
        raise ConfigError(
            f"all {len(peers)} peers join in seconds, which count from the beginning of round 1: "
            "nobody is there to begin it",
            hint="leave one peer out of the join tables, or have them join at a round",
        )
    if founders is not None and founders > there:
        raise ConfigError(
            f"run.founders = {founders}, but {there} of the {len(peers)} peers are there at the "
            f"beginning: {', '.join(late)} {'joins' if len(late) == 1 else 'join'} in seconds, "
            "which count from the beginning of round 1: the lobby would wait for ever",
            hint=f"take run.founders = {there} or less, leave it out, or have them join at a round",
        )


def _check_lives(faults: Iterable[Fault]) -> None:
    """Refuse what befalls a process before there is one."""
    joins = {
        name: fault
        for fault in faults
        if fault.kind is Kind.JOIN and fault.span.at_s is not None
        for name in fault.peers
    }
    for fault in faults:
        if fault.kind not in _BEFALL or fault.span.at_s is None:
            continue
        for name in fault.peers:
            join_s = joins[name].span.at_s if name in joins else None
            if join_s is not None and fault.span.at_s < join_s:
                raise ConfigError(
                    f"[[fault]] {fault.number} ({fault.kind}) befalls {name} at "
                    f"{fault.span.at_s:g} s, and it joins by [[fault]] {joins[name].number} at "
                    f"{join_s:g} s",
                    hint="let it come after the join",
                )


def _check_ends(faults: Iterable[Fault], peers: Collection[str], rounds: int) -> None:
    """Refuse a kill or freeze until a round that nobody begins, since all are stopped before it."""
    in_rounds = [fault for fault in with_ends(faults) if fault.span.in_rounds]
    stops = [fault for fault in in_rounds if fault.kind in _STOPS]
    left: dict[str, int] = {
        name: (fault.span.at_round or 1) - 1
        for fault in in_rounds
        if fault.kind is Kind.LEAVE
        for name in fault.peers
    }

    def farthest(reached: int) -> int:
        """The newest round that anybody begins, when those that end by `reached` have ended."""
        lasting = [f for f in stops if f.span.until_round is None or f.span.until_round > reached]
        return max(
            min(
                [min(rounds, left.get(name, rounds))]
                + [f.span.at_round or 1 for f in lasting if name in f.peers]
            )
            for name in peers
        )

    reached = 0
    while (further := farthest(reached)) > reached:
        reached = further
    for fault in stops:
        end = fault.span.until_round
        if end is not None and reached < end <= rounds:
            raise ConfigError(
                f"[[fault]] {fault.number} ({fault.kind}) ends with round {end}, which nobody "
                f"begins: the faults stop every peer by round {reached}",
                hint="give it in seconds (at_s, for_s), or leave somebody out of it",
            )
