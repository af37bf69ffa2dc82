"""Flower's objects, driven by transfer.py in a Python of its own.

    PYTHON _flower.py BODY SHAPES       BODY: a file of float32; SHAPES: JSON

A record of arrays lies in Flower's object store, cut into its chunks of 5 MiB. A reader in another
process has Flower pull the tree of objects through its gRPC stub and inflate it, and makes arrays
of it. For each line on stdin it does so once and prints one JSON line. What a server of Flower does
besides, which is to look up the run and to count traffic, is left out, in its favour.
"""

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from math import prod
from multiprocessing.connection import Connection
from pathlib import Path

import grpc
import numpy as np
from _children import Meter, running, tell
from flwr.app import ArrayRecord
from flwr.proto.fleet_pb2_grpc import (
    FleetServicer,
    FleetStub,
    add_FleetServicer_to_server,
)
from flwr.proto.message_pb2 import ObjectTree, PullObjectRequest, PullObjectResponse
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.inflatable.inflatable_protobuf_utils import make_pull_object_fn_protobuf
from flwr.supercore.inflatable.inflatable_utils import pull_and_inflate_object_from_tree
from flwr.supercore.object_store.in_memory_object_store import InMemoryObjectStore

RUN = 1
ANY_SIZE = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


class Shop(FleetServicer):  # type: ignore[misc]  # generated, without types
    """Answers PullObject from the store, as the handler of a SuperLink does."""

    def __init__(self, store: InMemoryObjectStore) -> None:
        self._store = store

    def PullObject(  # noqa: N802 - theirs
        self, request: PullObjectRequest, _context: object
    ) -> PullObjectResponse:
        content = self._store.get(request.object_id)
        return PullObjectResponse(
            object_found=content is not None,
            object_available=bool(content),
            object_content=content,
        )


def read(pipe: Connection, address: str, tree_bytes: bytes, num_bytes: int) -> None:
    tree = ObjectTree.FromString(tree_bytes)
    meter = Meter()
    with grpc.insecure_channel(address, options=ANY_SIZE) as channel:
        pull_object = make_pull_object_fn_protobuf(FleetStub(channel).PullObject, Node(), RUN)
        while pipe.recv():
            meter.reset()
            begin_s = time.monotonic()
            record = pull_and_inflate_object_from_tree(
                tree, pull_object, lambda _id: None, return_type=ArrayRecord
            )
            arrays = record.to_numpy_ndarrays()
            seconds = time.monotonic() - begin_s
            if (received := sum(array.nbytes for array in arrays)) != num_bytes:
                raise RuntimeError(f"{received} bytes came of {num_bytes}")
            del record, arrays
            pipe.send((seconds, meter.read()))


def main() -> None:
    shapes = json.loads(sys.argv[2])
    ends = np.cumsum([prod(shape) for shape in shapes])
    body = np.fromfile(Path(sys.argv[1]), np.float32, ends[-1])
    parts = zip(np.split(body, ends[:-1]), shapes, strict=True)
    record = ArrayRecord([part.reshape(shape) for part, shape in parts])
    store = InMemoryObjectStore()
    tree = get_object_tree(record)
    store.preregister(RUN, tree)
    for object_id, thing in get_all_nested_objects(record).items():
        store.put(object_id, thing.deflate())
    server = grpc.server(ThreadPoolExecutor(8), options=ANY_SIZE)
    add_FleetServicer_to_server(Shop(store), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    meter = Meter()
    with running(read, f"127.0.0.1:{port}", tree.SerializeToString(), int(4 * ends[-1])) as (
        pipe,
        _,
    ):
        for _ in sys.stdin:
            meter.reset()
            pipe.send("go")
            seconds, theirs = pipe.recv()
            tell(seconds, sender=meter.read(), receiver=theirs)
    server.stop(0)


if __name__ == "__main__":
    main()
