"""What Kinfolk's transfer is compared with: other ways to bring one body into another process.

Each way is a pair of context managers: `serve` gives an address, `reader` a function that brings
the whole body over once. All of them send from a mapped file, and receive into memory that was
there before, where the way allows it. None of them encrypts.
"""

import mmap
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Protocol

import zmq

try:
    import grpc
    from google.protobuf.wrappers_pb2 import BytesValue
except ImportError:
    grpc = None

__all__ = [
    "ANY_SIZE",
    "HAS_GRPC",
    "GrpcPieces",
    "GrpcStream",
    "GrpcUnary",
    "OneFrame",
    "RawTcp",
    "Way",
    "calling",
    "listening",
    "mapped",
    "whole",
]

HAS_GRPC = grpc is not None
SLICE_BYTES = 1 << 20
STREAM_BYTES = 4 << 20
PIECE_BYTES = 5 << 20
LOOPBACK = "127.0.0.1"
_METHOD = "/benchmark.Bodies/Get"
ANY_SIZE = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


class Way(Protocol):
    def serve(self, path: Path, num_bytes: int) -> AbstractContextManager[str]: ...

    def reader(
        self, address: str, num_bytes: int, number: int = 0
    ) -> AbstractContextManager[Callable[[], None]]: ...


def mapped(path: Path) -> memoryview:
    with path.open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


@contextmanager
def listening(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """Answer each connection in a thread of its own; the port."""

    def accept(listener: socket.socket) -> None:
        with suppress(OSError):  # closed
            while True:
                Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server((LOOPBACK, 0)) as listener:
        Thread(target=accept, args=(listener,), daemon=True).start()
        yield str(listener.getsockname()[1])


@contextmanager
def calling(path: str, handler: object, *, threads: int = 8) -> Iterator[str]:
    """Serve one method of gRPC, "/service/method"; the port."""
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - of gRPC alone

    server = grpc.server(ThreadPoolExecutor(threads), options=ANY_SIZE)
    service, method = path[1:].split("/")
    generic = grpc.method_handlers_generic_handler(service, {method: handler})
    server.add_generic_rpc_handlers((generic,))
    port = server.add_insecure_port(f"{LOOPBACK}:0")
    server.start()
    yield str(port)
    server.stop(0)


@dataclass(frozen=True)
class RawTcp:
    """sendall and recv_into in slices: the bound of what one thread gets through a socket."""

    @contextmanager
    def serve(self, path: Path, num_bytes: int) -> Iterator[str]:
        body = mapped(path)

        def answer(connection: socket.socket) -> None:
            with connection:
                while connection.recv(1):
                    for at in range(0, num_bytes, SLICE_BYTES):
                        connection.sendall(body[at : min(at + SLICE_BYTES, num_bytes)])

        with listening(answer) as port:
            yield port

    @contextmanager
    def reader(self, address: str, num_bytes: int, number: int = 0) -> Iterator[Callable[[], None]]:
        buffer = memoryview(bytearray(num_bytes))
        with socket.create_connection((LOOPBACK, int(address))) as connection:

            def pull() -> None:
                connection.sendall(b"?")
                at = 0
                while at < num_bytes:
                    at += connection.recv_into(buffer[at : at + SLICE_BYTES])

            yield pull


@dataclass(frozen=True)
class OneFrame:
    """One ZeroMQ message for the whole body."""

    @contextmanager
    def serve(self, path: Path, num_bytes: int) -> Iterator[str]:
        body = mapped(path)[:num_bytes]

        def answer(server: "zmq.Socket[bytes]") -> None:
            with suppress(zmq.ZMQError):  # closed
                while True:
                    route, _ = server.recv_multipart()
                    server.send_multipart((route, body), copy=False)

        context = zmq.Context()
        server = context.socket(zmq.ROUTER)
        port = server.bind_to_random_port(f"tcp://{LOOPBACK}")
        Thread(target=answer, args=(server,), daemon=True).start()
        yield str(port)

    @contextmanager
    def reader(self, address: str, num_bytes: int, number: int = 0) -> Iterator[Callable[[], None]]:
        client = zmq.Context().socket(zmq.DEALER)
        client.connect(f"tcp://{LOOPBACK}:{address}")

        def pull() -> None:
            client.send(b"?")
            frame = client.recv(copy=False)
            whole(len(frame.buffer), num_bytes)

        yield pull


def _wrapped(piece: bytes) -> bytes:
    return bytes(BytesValue(value=piece).SerializeToString())


def _unwrapped(message: bytes) -> bytes:
    return bytes(BytesValue.FromString(message).value)


@dataclass(frozen=True)
class _Grpc:
    """What the ways of gRPC share: bytes in, bytes out, where asked with protobuf around them."""

    is_protobuf: bool = False  # as gRPC is used: each piece is a field of a message

    def _coded(self, side: str) -> dict[str, Callable[[bytes], bytes]]:
        ways = {"serializer": _wrapped, "deserializer": _unwrapped}
        return {f"response_{side}": ways[side]} if self.is_protobuf else {}

    def _handler(self, body: memoryview) -> object:
        raise NotImplementedError

    @contextmanager
    def serve(self, path: Path, num_bytes: int) -> Iterator[str]:
        with calling(_METHOD, self._handler(mapped(path)[:num_bytes])) as port:
            yield port

    @contextmanager
    def _channel(self, address: str) -> "Iterator[grpc.Channel]":
        with grpc.insecure_channel(f"{LOOPBACK}:{address}", options=ANY_SIZE) as channel:
            yield channel


@dataclass(frozen=True)
class GrpcStream(_Grpc):
    """A server's stream of pieces of 4 MiB, copied into their places."""

    def _handler(self, body: memoryview) -> object:
        def answer(_request: bytes, _context: object) -> Iterator[bytes]:
            for at in range(0, len(body), STREAM_BYTES):
                yield bytes(body[at : at + STREAM_BYTES])

        return grpc.unary_stream_rpc_method_handler(answer, **self._coded("serializer"))

    @contextmanager
    def reader(self, address: str, num_bytes: int, number: int = 0) -> Iterator[Callable[[], None]]:
        buffer = memoryview(bytearray(num_bytes))
        with self._channel(address) as channel:
            ask = channel.unary_stream(_METHOD, **self._coded("deserializer"))

            def pull() -> None:
                at = 0
                for piece in ask(b"?"):
                    buffer[at : at + len(piece)] = piece
                    at += len(piece)
                whole(at, num_bytes)

            yield pull


@dataclass(frozen=True)
class GrpcUnary(_Grpc):
    """One message for the whole body."""

    def _handler(self, body: memoryview) -> object:
        return grpc.unary_unary_rpc_method_handler(
            lambda _request, _context: bytes(body), **self._coded("serializer")
        )

    @contextmanager
    def reader(self, address: str, num_bytes: int, number: int = 0) -> Iterator[Callable[[], None]]:
        with self._channel(address) as channel:
            ask = channel.unary_unary(_METHOD, **self._coded("deserializer"))
            yield lambda: whole(len(ask(b"?")), num_bytes)


@dataclass(frozen=True)
class GrpcPieces(_Grpc):
    """One call for each piece of 5 MiB, one after another, as Flower sends objects."""

    def _handler(self, body: memoryview) -> object:
        def answer(request: bytes, _context: object) -> bytes:
            at = int.from_bytes(request)
            return bytes(body[at : at + PIECE_BYTES])

        return grpc.unary_unary_rpc_method_handler(answer, **self._coded("serializer"))

    @contextmanager
    def reader(self, address: str, num_bytes: int, number: int = 0) -> Iterator[Callable[[], None]]:
        buffer = memoryview(bytearray(num_bytes))
        with self._channel(address) as channel:
            ask = channel.unary_unary(_METHOD, **self._coded("deserializer"))

            def pull() -> None:
                for at in range(0, num_bytes, PIECE_BYTES):
                    piece = ask(at.to_bytes(8))
                    buffer[at : at + len(piece)] = piece

            yield pull


def whole(received: int, num_bytes: int) -> None:
    if received != num_bytes:
        raise RuntimeError(f"{received} bytes came of {num_bytes}")
