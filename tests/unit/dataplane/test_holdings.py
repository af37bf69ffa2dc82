"""What is on this host already, and what becomes of it."""

from peer.dataplane.holdings import Holdings
from protocol.wire.layout import Place

X, Y = b"x" * 32, b"y" * 32


def held() -> Holdings:
    holdings = Holdings()
    holdings.add("a", memoryview(b"xxxyy"), [(X, Place(0, 3)), (Y, Place(3, 5))])
    holdings.add("b", memoryview(b"__yy"), [(Y, Place(2, 4))])
    return holdings


def found(holdings: Holdings, digest: bytes, num_bytes: int, besides: str = "") -> bytes | None:
    view = holdings.find(digest, num_bytes, besides=besides)
    return None if view is None else bytes(view)


def test_a_tensor_is_found_wherever_it_lies() -> None:
    assert found(held(), X, 3) == b"xxx"
    assert found(held(), Y, 2) == b"yy"
    assert found(held(), Y, 2, besides="a") == b"yy"
    assert found(held(), X, 3, besides="a") is None
    assert found(held(), b"z" * 32, 3) is None


def test_a_digest_of_other_bytes_is_not_believed() -> None:
    assert found(held(), X, 4) is None  # the manifest says another size


def test_a_source_that_is_written_holds_nothing_any_more() -> None:
    holdings = held()
    assert holdings.places("a") == {X: Place(0, 3), Y: Place(3, 5)}
    holdings.drop("a")
    holdings.drop("never known")
    assert holdings.places("a") == {}
    assert found(holdings, X, 3) is None
    assert found(holdings, Y, 2) == b"yy"
    holdings.add("b", memoryview(b"new"), [(X, Place(0, 3))])
    assert found(holdings, X, 3) == b"new"
    assert found(holdings, Y, 2) is None
