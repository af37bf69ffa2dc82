"""The newest signed view in a peer's state folder: from it a peer goes on without a coordinator.

The coordinator's signature vouches for what it says, a digest for its bytes. No torch.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from peer.durable import write_whole
from peer.layout import view_file
from protocol.errors import DataError, RemoteProtocolError
from protocol.ids import PeerId
from protocol.wire.codec import COORDINATOR
from protocol.wire.digest import DIGEST_BYTES, digest
from protocol.wire.messages import MAX_MANIFEST_BYTES, Member, SignedView, View, is_newer
from protocol.wire.signing import open_view

__all__ = ["Cached", "ForeignView", "find_view", "keep_view", "read_view"]

_MOST_BYTES = MAX_MANIFEST_BYTES + 65536  # of a file that is worth a look


class ForeignView(DataError):  # noqa: N818 - what the file is, not what was raised
    """It is whole, and no word of this coordinator's."""


@dataclass(frozen=True, slots=True)
class Cached:
    """What a peer has kept, or why that is of no use."""

    signed: SignedView | None = None
    address: str = ""  # of this peer, as the others know it
    troubles: tuple[str, ...] = ()  # one line for each file that is of no use


def keep_view(directory: Path, signed: SignedView, *, sync: bool = True) -> None:
    """Write it down in this peer's run directory, whole or not at all.

    Raises:
        OSError: the disk is full or refuses; what was there stays.
    """
    encoded = COORDINATOR.encode(signed)
    write_whole(view_file(directory), digest(encoded) + encoded, sync=sync)


def read_view(directory: Path, sign_key: bytes) -> tuple[SignedView, View]:
    """Read what `keep_view` wrote.

    Args:
        directory: the peer's run directory.
        sign_key: the coordinator's, from the join string.

    Raises:
        DataError: it is torn, or (`ForeignView`) no coordinator with this key has signed it.
        FileNotFoundError: there is none.
    """
    path = view_file(directory)
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from None
    told, encoded = content[:DIGEST_BYTES], content[DIGEST_BYTES:]
    if digest(encoded) != told:
        raise DataError(f"{path} is torn")
    try:
        signed = COORDINATOR.decode(encoded)
        if not isinstance(signed, SignedView):
            raise RemoteProtocolError("it holds no view")
        opened = open_view(signed, sign_key)
    except RemoteProtocolError as error:
        raise ForeignView(f"{path} cannot be used: {error}") from None
    return opened.signed, opened.view


def find_view(out: Path | None, me: PeerId, sign_key: bytes) -> Cached:
    """Look for the newest view from which this peer can go on without the coordinator.

    Args:
        out: the folder of the run, as it was typed; None: any below `runs/`, as run directories lie
            where nobody typed one. There, views of other coordinators are of other runs.
        me: this peer's name.
        sign_key: the coordinator's, from the join string.
    """
    places = [out / me] if out is not None else sorted(Path("runs").glob(f"*/{me}"))
    found: tuple[SignedView, View] | None = None
    troubles: list[str] = []
    for directory in places:
        try:
            signed, view = read_view(directory, sign_key)
        except FileNotFoundError:
            continue
        except DataError as error:
            if out is not None or not isinstance(error, ForeignView):
                troubles.append(str(error))
            continue
        if reason := _useless(view, me):
            troubles.append(f"{view_file(directory)} cannot be used: {reason}")
        elif found is None or is_newer(view.epoch, found[1].epoch):
            found = signed, view
    if found is None:
        return Cached(troubles=tuple(troubles))
    own = next(_own(found[1], me))
    return Cached(found[0], own.address, tuple(troubles))


def _useless(view: View, me: PeerId) -> str:
    """Why a peer cannot go on by this view; empty if it can."""
    if not view.settled or not view.founding:
        return "the run had not begun"
    state = next((member.state for member in _own(view, me)), "")
    if state not in {"ready", "lost"}:
        told = {"left": "had left", "revoked": "was revoked", "joining": "was not ready yet"}
        return f"{me} {told.get(state, 'was no member')}"
    return ""


def _own(view: View, me: PeerId) -> Iterator[Member]:
    return (member for member in view.members if member.name == me)
