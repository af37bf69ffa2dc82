"""What happened between two views, in words for people and for programs. Pure."""

from dataclasses import dataclass

from protocol.wire.messages import Member, View

__all__ = ["Change", "changes", "status_line"]

_SHOWN_NAMES = 12


@dataclass(frozen=True, slots=True)
class Change:
    event: str  # joined, returned, ready, lost, left, revoked or founded
    name: str  # of the member, or of the run
    text: str


def changes(before: View | None, after: View) -> list[Change]:
    """Tell what changed; everything is new when there is no view before."""
    known = {member.name: member for member in before.members} if before else {}
    told = [
        change
        for member in after.members
        if (change := _member_change(known.get(member.name), member, after))
    ]
    if after.founding and not (before and before.founding):
        told.append(Change("founded", after.run_name, f"the run starts: {_names(after.founding)}"))
    return told


def status_line(view: View) -> str:
    """Say in one line where the run stands."""
    here = _ready(view)
    if not view.founding:
        line = f"{len(here)} of {view.founders} peers ready"
        missing = max(0, view.founders - len(here))
        coming = [m.name for m in view.members if m.role == "relay" and m.state == "joining"]
        if not missing:
            awaited = _names(coming) if coming else "a relay"
            return f"{line}: {_names(here)}; waiting for {awaited}"
        return f"{line}: {_names(here)}; waiting for {missing}" if here else line
    absent = [m.name for m in view.members if m.state == "lost"]
    newest = max((m.round_no for m in view.members), default=0)
    line = f"{len(here)} peer{'' if len(here) == 1 else 's'}, newest round {newest}"
    return f"{line}; lost: {_names(absent)}" if absent else line


def _member_change(before: Member | None, after: Member, view: View) -> Change | None:
    name, state = after.name, after.state
    old = before.state if before else ""
    if state == old:
        return None
    match state:
        case "joining" | "ready" if old in {"lost", "left"}:
            return Change("returned", name, f"{name} is back at {after.address}")
        case "joining":
            return Change("joined", name, f"{name} joined as a {after.role} at {after.address}")
        case "ready":
            return Change("ready", name, f"{name} is ready: {status_line(view)}")
        case "lost":
            return Change("lost", name, f"{name} is lost: no sign of life for a whole lease")
        case "revoked":
            return Change("revoked", name, f"{name} was revoked")
        case _:
            return Change("left", name, f"{name} left")


def _ready(view: View) -> list[str]:
    return [m.name for m in view.members if m.state == "ready" and m.role == "peer"]


def _names(names: list[str] | tuple[str, ...]) -> str:
    shown = ", ".join(names[:_SHOWN_NAMES])
    return f"{shown} and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else shown
