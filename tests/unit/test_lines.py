"""What a listener may ask of descriptors that are another's, and may be gone by now."""

import os
import socket

from protocol.transport.lines import _received_bytes


def test_a_connection_tells_what_has_come_in() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as there,
        server.accept()[0] as here,
    ):
        there.sendall(bytes(1000))
        assert here.recv(1000, socket.MSG_WAITALL) == bytes(1000)
        assert _received_bytes(here.fileno()) == 1000


def test_a_descriptor_that_is_closed_or_no_connection_tells_nothing() -> None:
    with socket.socket() as gone:
        number = gone.fileno()
    assert _received_bytes(number) is None
    reader, writer = os.pipe()
    try:
        assert _received_bytes(reader) is None
    finally:
        os.close(reader)
        os.close(writer)
