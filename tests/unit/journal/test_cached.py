"""The view that a peer keeps on disk: what is torn, or nobody's word here, is told and left."""

from dataclasses import replace
from pathlib import Path

import pytest

from peer.cached import Cached, find_view, keep_view
from peer.layout import view_file
from protocol.ids import PeerId
from protocol.wire.messages import Epoch, Member, SignedView, View
from protocol.wire.signing import seal_view, sign_public

SECRET, ANOTHER = bytes(range(32)), bytes(32)
KEY = sign_public(SECRET)
ME = PeerId("a")
ADDRESS = "tcp://10.0.0.1:4000"


def view(
    counter: int = 3, *, state: str = "ready", secret: bytes = SECRET, **odd: object
) -> SignedView:
    members = tuple(
        Member(name, "peer", state, ADDRESS, name.encode() * 32, bytes(32), 0) for name in "ab"
    )
    whole = View(b"r" * 16, "town", Epoch(1, counter), 2, ("a", "b"), members, settled=True)
    return seal_view(replace(whole, **odd), secret)  # type: ignore[arg-type]


def kept(out: Path, signed: SignedView) -> Path:
    """A run directory that holds it; its file."""
    view_file(out / ME).parent.mkdir(parents=True, exist_ok=True)
    keep_view(out / ME, signed)
    return view_file(out / ME)


def test_what_was_kept_is_found_with_the_address_of_this_peer(tmp_path: Path) -> None:
    kept(tmp_path, view(3))
    kept(tmp_path, view(4))
    assert find_view(tmp_path, ME, KEY) == Cached(view(4), ADDRESS)
    assert find_view(tmp_path / "nowhere", ME, KEY) == Cached()
    assert find_view(tmp_path, PeerId("c"), KEY) == Cached()


def test_a_torn_view_is_told_wherever_it_is_torn(tmp_path: Path) -> None:
    path = kept(tmp_path, view())
    whole = path.read_bytes()
    turned = bytes([whole[50] ^ 1])
    for torn in (b"", whole[:20], whole[:-1], whole + b"x", whole[:50] + turned + whole[51:]):
        path.write_bytes(torn)
        assert find_view(tmp_path, ME, KEY) == Cached(troubles=(f"{path} is torn",))


@pytest.mark.parametrize(
    ("signed", "reason"),
    [
        (view(secret=ANOTHER), "the view is not signed by the run's coordinator"),
        (replace(view(), signature=bytes(64)), "the view is not signed by the run's coordinator"),
        (view(settled=False), "the run had not begun"),
        (view(founding=()), "the run had not begun"),
        (view(state="left"), "a had left"),
        (view(state="revoked"), "a was revoked"),
        (view(state="joining"), "a was not ready yet"),
        (view(members=()), "a was no member"),
    ],
)
def test_a_view_by_which_a_peer_cannot_go_on_is_told(
    tmp_path: Path, signed: SignedView, reason: str
) -> None:
    path = kept(tmp_path, signed)
    assert find_view(tmp_path, ME, KEY) == Cached(troubles=(f"{path} cannot be used: {reason}",))


def test_without_a_folder_the_newest_view_of_this_coordinator_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    kept(Path("runs/old"), view(2))
    kept(Path("runs/new"), view(5))
    kept(Path("runs/others"), view(9, secret=ANOTHER))  # another run's, and no trouble
    torn = kept(Path("runs/torn"), view(8))
    torn.write_bytes(b"")
    assert find_view(None, ME, KEY) == Cached(view(5), ADDRESS, (f"{torn} is torn",))
