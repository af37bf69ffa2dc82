"""Mapped files: what is served, and what is received into."""

from pathlib import Path
from threading import Thread

import pytest

from peer.dataplane.bodies import ReceiveBuffer, ServedBody
from peer.dataplane.inbox import Inbox
from protocol.errors import LocalProtocolError
from protocol.transport.wake import SocketWake


def test_a_served_body_begins_at_its_offset_and_outlives_its_file(tmp_path: Path) -> None:
    path = tmp_path / "served"
    path.write_bytes(bytes(64) + b"0123456789" + b"what comes after")
    body = ServedBody(path, offset=64, num_bytes=10)
    path.unlink()
    assert bytes(body.piece(0, 10)) == b"0123456789"
    assert bytes(body.piece(8, 2)) == b"89"
    assert body.piece(0, 1).readonly


def test_a_body_without_bytes_needs_no_map(tmp_path: Path) -> None:
    assert len(ServedBody(tmp_path / "missing", offset=64, num_bytes=0).piece(0, 0)) == 0


def test_a_file_that_ends_before_its_body_is_our_own_fault(tmp_path: Path) -> None:
    path = tmp_path / "served"
    path.write_bytes(bytes(73))
    with pytest.raises(LocalProtocolError, match="has 73 bytes, needs 74"):
        ServedBody(path, offset=64, num_bytes=10)


@pytest.mark.parametrize("before", [b"", b"much longer than ten bytes", b"short"])
def test_a_receive_buffer_gets_the_size_of_its_body(tmp_path: Path, before: bytes) -> None:
    path = tmp_path / "received"
    path.write_bytes(before)
    buffer = ReceiveBuffer(path, num_bytes=10)
    buffer.view[:] = b"0123456789"
    buffer.close()
    assert path.read_bytes() == b"0123456789"


def test_a_receive_buffer_may_be_empty(tmp_path: Path) -> None:
    buffer = ReceiveBuffer(tmp_path / "received", num_bytes=0)
    buffer.close()
    assert (tmp_path / "received").read_bytes() == b""


def test_a_receive_buffer_is_closed_though_somebody_still_reads_it(tmp_path: Path) -> None:
    buffer = ReceiveBuffer(tmp_path / "received", num_bytes=4)
    reader = buffer.view[1:3]
    buffer.close()
    assert bytes(reader) == b"\0\0"


def test_what_is_put_while_the_inbox_is_drained_is_not_missed() -> None:
    wake = SocketWake()
    inbox: Inbox[int] = Inbox(wake)
    threads = [Thread(target=inbox.put, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    items = inbox.drain()
    first = next(items)
    inbox.put(9)
    assert sorted([first, *items]) == [0, 1, 2, 3, 9]
    assert list(inbox.drain()) == []
    wake.close()
