"""Strangers at a port: whoever connects to a peer or a coordinator and is not what it waits for."""

import os
import socket
from contextlib import ExitStack
from random import Random

import zmq

__all__ = ["molest"]

JUNK = (
    b"GET / HTTP/1.1\r\nHost: kinfolk\r\n\r\n",
    b"\xff" + bytes(8) + b"\x01\x7f",  # the beginning of an old ZMTP greeting
    b"\xff" + bytes(8) + b"\x7f\x03\x00CURVE" + bytes(100),  # a ZMTP 3.0 greeting, and zeros
)
SPOKEN_MS = 200  # for the words to arrive


def molest(port: int, server_key: bytes, *, seed: int) -> None:
    """Do to a port on this machine what a stranger may do, and stay connected while at it.

    Args:
        port: of 127.0.0.1.
        server_key: of the process that listens there: a stranger may have learnt it.
        seed: of the random bytes.
    """
    chance = Random(seed)
    with ExitStack() as stack:
        for junk in (*JUNK, chance.randbytes(100_000), b""):
            plain = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5))
            try:
                plain.sendall(junk)
            except (BrokenPipeError, ConnectionResetError):
                continue  # thrown out in the middle of it
        context = stack.enter_context(zmq.Context())
        dealers = [
            _dealer(context, keys) for keys in ({}, _curve(server_key), _curve(os.urandom(32)))
        ]
        for dealer in dealers:
            stack.enter_context(dealer)
            dealer.connect(f"tcp://127.0.0.1:{port}")
            for size in (0, 1, 100, 4000):
                dealer.send_multipart([chance.randbytes(size), chance.randbytes(size)])
        dealers[1].poll(SPOKEN_MS)  # nobody has to answer


def _dealer(
    context: "zmq.Context[zmq.Socket[bytes]]", keys: dict[int, bytes]
) -> "zmq.Socket[bytes]":
    dealer = context.socket(zmq.DEALER)
    dealer.setsockopt(zmq.LINGER, 0)
    for option, value in keys.items():
        dealer.setsockopt(option, value)
    return dealer


def _curve(server_key: bytes) -> dict[int, bytes]:
    """Keys of a client that nobody knows."""
    public, secret = zmq.curve_keypair()
    return {
        zmq.CURVE_SERVERKEY: server_key,
        zmq.CURVE_PUBLICKEY: public,
        zmq.CURVE_SECRETKEY: secret,
    }
