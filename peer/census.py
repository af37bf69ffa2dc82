"""What a node asks of a view, derived once for all who hold the same one. Pure; no IO.

Every member keeps some of it for as long as the view stands; in a simulation that is many.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from peer.roles import Role
from protocol.ids import PeerId
from protocol.wire.messages import Member, View

__all__ = ["Census", "census_of"]

_KEPT = 4  # of the newest views
_LEFT = frozenset({"left", "revoked"})


@dataclass(frozen=True, slots=True)
class Census:
    """A view's members by what they are. Names are sorted."""

    view: View
    admitted: Mapping[bytes, PeerId]  # by key: all but the revoked
    by_name: Mapping[PeerId, Member]
    left: frozenset[PeerId]  # by the coordinator's word, relays too
    revoked: frozenset[PeerId]  # some of those
    founding: tuple[PeerId, ...]  # round 1's roster
    ready: tuple[PeerId, ...]  # peers
    taking_part: tuple[PeerId, ...]  # the same, and those whose lease ran out
    relays_ready: tuple[PeerId, ...]
    relays_taking_part: tuple[PeerId, ...]


class _Shelf:
    """The newest few, found by identity: to compare two views costs more than to count one."""

    def __init__(self) -> None:
        self._newest: tuple[Census, ...] = ()

    def of(self, view: View) -> Census:
        for known in self._newest:
            if known.view is view:
                return known
        census = _count(view)
        self._newest = (census, *self._newest[: _KEPT - 1])
        return census


_shelf = _Shelf()


def census_of(view: View) -> Census:
    """Count a view, or take the count of it that there is."""
    return _shelf.of(view)


def _count(view: View) -> Census:
    by_name = {PeerId(member.name): member for member in view.members}
    states: dict[tuple[str, str], list[PeerId]] = {}
    for name in sorted(by_name):
        states.setdefault((by_name[name].role, by_name[name].state), []).append(name)

    def those(role: Role, *wanted: str) -> tuple[PeerId, ...]:
        return tuple(sorted(n for state in wanted for n in states.get((role.value, state), ())))

    return Census(
        view=view,
        admitted=MappingProxyType(
            {m.curve_key: name for name, m in by_name.items() if m.state != "revoked"}
        ),
        by_name=MappingProxyType(by_name),
        left=frozenset(name for name, m in by_name.items() if m.state in _LEFT),
        revoked=frozenset(name for name, m in by_name.items() if m.state == "revoked"),
        founding=tuple(PeerId(name) for name in view.founding),
        ready=those(Role.PEER, "ready"),
        taking_part=those(Role.PEER, "ready", "lost"),
        relays_ready=those(Role.RELAY, "ready"),
        relays_taking_part=those(Role.RELAY, "ready", "lost"),
    )
