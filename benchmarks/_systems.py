"""Other systems, each itself, in an environment of its own; and what p2pfl does, done here.

What p2pfl 0.4.4 does to bring a model to a neighbour, step by step, on gRPC and protobuf.

The sender pickles the arrays, pickles that once more beside the name of a compressor, puts it into
a message inside a message, and sends it as the request of one call. The receiver makes the message
of it, serializes it again to log its size, and unpickles twice. The same copies are made here
without pickle, which takes the same time. Left out, in its favour: what its sender does after the
receiver has the arrays (to log the size it serializes the message once more), and its logging.
"""

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from pathlib import Path
from queue import SimpleQueue
from subprocess import PIPE, Popen

from _rivals import ANY_SIZE, LOOPBACK, calling, listening, mapped, whole

try:
    import grpc
    from google.protobuf.any_pb2 import Any as Weights  # bytes and a name
    from google.protobuf.type_pb2 import Option as Message  # a name, and a message in it
    from google.protobuf.wrappers_pb2 import BytesValue as Answer
except ImportError:
    grpc = None

__all__ = ["P2pflLike", "System"]

_METHOD = "/benchmark.Nodes/Send"
_HEAD = bytes(40)  # what the outer pickle puts before the inner


@dataclass(frozen=True)
class P2pflLike:
    """The model is pushed: who wants it runs a gRPC server, and asks for it on a line beside."""

    shapes: tuple[tuple[int, ...], ...]  # of float32

    def _parts(self, body: memoryview) -> list[memoryview]:
        """The bytes of each array: to make an array of them takes no time."""
        ends = [*accumulate(4 * prod(shape) for shape in self.shapes)]
        return [body[start:end] for start, end in zip([0, *ends], ends, strict=False)]

    def _encoded(self, parts: list[memoryview]) -> bytes:
        inner = b"".join([bytes(part) for part in parts])
        return b"".join((_HEAD, inner))

    def _decoded(self, encoded: bytes) -> list[bytes]:
        inner = bytes(memoryview(encoded)[len(_HEAD) :])
        return [bytes(part) for part in self._parts(memoryview(inner))]

    @contextmanager
    def serve(self, path: Path, num_bytes: int) -> Iterator[str]:
        parts = self._parts(mapped(path)[:num_bytes])

        def answer(line: socket.socket) -> None:
            with line, line.makefile("r") as words:
                address = words.readline().strip()
                with grpc.insecure_channel(address, options=ANY_SIZE) as channel:
                    send = channel.unary_unary(
                        _METHOD,
                        request_serializer=Message.SerializeToString,
                        response_deserializer=Answer.FromString,
                    )
                    for _ in words:
                        weights = Weights(value=self._encoded(parts))
                        send(Message(name="full_model", value=weights))

        with listening(answer) as port:
            yield port

    @contextmanager
    def reader(self, address: str, num_bytes: int, number: int = 0) -> Iterator[Callable[[], None]]:
        arrived: SimpleQueue[list[bytes]] = SimpleQueue()

        def take(request: "Message", _context: object) -> "Answer":
            request.SerializeToString()  # its length is logged
            arrived.put(self._decoded(request.value.value))
            return Answer()

        handler = grpc.unary_unary_rpc_method_handler(
            take,
            request_deserializer=Message.FromString,
            response_serializer=Answer.SerializeToString,
        )
        with (
            calling(_METHOD, handler, threads=2) as port,
            socket.create_connection((LOOPBACK, int(address))) as line,
        ):
            line.sendall(f"{LOOPBACK}:{port}\n".encode())

            def pull() -> None:
                line.sendall(b"?\n")
                whole(sum(map(len, arrived.get())), num_bytes)

            yield pull


@dataclass(frozen=True)
class System:
    """Another system, in the Python of an environment that has it (`_p2pfl.py`, `_flower.py`)."""

    name: str
    python: str
    shapes: tuple[tuple[int, ...], ...]

    @contextmanager
    def driven(self, path: Path) -> Iterator[Callable[[], dict[str, float]]]:
        """Its two processes; the function brings the arrays over once and gives what it took."""
        script = Path(__file__).with_name(f"_{self.name}.py")
        command = (self.python, "-W", "ignore", str(script), str(path), json.dumps(self.shapes))
        with Popen(command, stdin=PIPE, stdout=PIPE, text=True) as child:  # noqa: S603
            lines, words = child.stdout, child.stdin

            def bring() -> dict[str, float]:
                print("go", file=words, flush=True)
                line = lines.readline() if lines else ""
                if not line:
                    raise RuntimeError(f"{script.name} ended in {self.python}: see above")
                found: dict[str, float] = json.loads(line)
                return found

            yield bring
            child.communicate()
