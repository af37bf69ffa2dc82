"""p2pfl itself, driven by transfer.py in a Python of its own: its versions of numpy are not ours.

    PYTHON _p2pfl.py BODY SHAPES        BODY: a file of float32; SHAPES: JSON

Its own gRPC client pushes the arrays to its own gRPC server in another process, encoded and decoded
by its own functions, as its nodes do when they gossip a model. For each line on stdin it does so
once and prints one JSON line. The time ends when the receiver has the arrays.
"""

import json
import socket
import sys
import time
from contextlib import suppress
from math import prod
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from _children import Meter, running, tell
from p2pfl.settings import Settings

Settings.general.DISABLE_RAY = True  # before anything else of it is imported
Settings.general.GRPC_TIMEOUT = 60.0
Settings.general.LOG_LEVEL = "ERROR"
_LOGS = TemporaryDirectory()
Settings.general.LOG_DIR = _LOGS.name

from p2pfl.communication.commands.command import Command  # noqa: E402
from p2pfl.communication.protocols.protobuff.grpc.client import GrpcClient  # noqa: E402
from p2pfl.communication.protocols.protobuff.grpc.server import GrpcServer  # noqa: E402
from p2pfl.communication.protocols.protobuff.proto import node_pb2  # noqa: E402
from p2pfl.learning.compression.manager import CompressionManager  # noqa: E402
from p2pfl.management.logger import logger  # noqa: E402

SENDER = "127.0.0.1:1"  # a name; nothing listens there
NAME = "full_model"


def receive(pipe: Connection, num_bytes: int) -> None:
    meter = Meter()

    class Take(Command):  # type: ignore[misc]  # p2pfl has no types
        @staticmethod
        def get_name() -> str:
            return NAME

        def execute(self, *_where: object, weights: bytes = b"", **_: object) -> None:
            arrays, _info = CompressionManager.reverse(weights)
            end_s = time.monotonic()
            if (received := sum(array.nbytes for array in arrays)) != num_bytes:
                raise RuntimeError(f"{received} bytes came of {num_bytes}")
            pipe.send((end_s, meter.read()))

    server = GrpcServer(None, None, [Take()])
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = server.set_addr(f"127.0.0.1:{port}")
    logger.register_node(address)
    server.start()
    pipe.send(address)
    with suppress(EOFError):  # the end
        while pipe.recv():
            meter.reset()
            pipe.send("ready")


def main() -> None:
    path, shapes = Path(sys.argv[1]), json.loads(sys.argv[2])
    body = np.memmap(path, np.float32, mode="r")
    ends = np.cumsum([prod(shape) for shape in shapes])
    parts = np.split(body[: ends[-1]], ends[:-1])
    arrays = [np.asarray(part).reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
    logger.register_node(SENDER)
    with running(receive, int(4 * ends[-1])) as (pipe, _):
        client = GrpcClient(SENDER, pipe.recv())
        client.connect(handshake_msg=False)
        meter = Meter()
        for _ in sys.stdin:
            pipe.send("reset")
            pipe.recv()
            meter.reset()
            begin_s = time.monotonic()
            encoded = CompressionManager.apply(arrays, {}, {})
            weights = node_pb2.Weights(weights=encoded, contributors=[SENDER], num_samples=1)
            message = node_pb2.RootMessage(source=SENDER, round=1, cmd=NAME, weights=weights)
            client.send(message, raise_error=True)
            end_s, theirs = pipe.recv()
            del encoded, weights, message
            tell(end_s - begin_s, sender=meter.read(), receiver=theirs)


if __name__ == "__main__":
    main()
