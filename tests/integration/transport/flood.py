"""A member that fills others' memory: messages of very many frames, each within the limit.

Run as a process of its own: python -m tests.integration.transport.flood PORT SERVER_KEY SECRET KEY
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import zmq

from protocol.transport.keys import Identity

FRAME = b"x" * 4000
FRAMES = 100_000  # 400 MB: none of it is handed over before the last frame has come


@contextmanager
def flooding(port: int, server_key: bytes, keys: Identity) -> Iterator[None]:
    """A member at a port of this machine that floods it as long as it is let."""
    words = [key.hex() for key in (server_key, keys.curve_secret, keys.curve_public)]
    process = subprocess.Popen([sys.executable, "-m", __name__, str(port), *words])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def main(port: str, server_key: str, secret: str, public: str) -> None:
    context = zmq.Context()
    dealer = context.socket(zmq.DEALER)
    dealer.setsockopt(zmq.CURVE_SERVERKEY, bytes.fromhex(server_key))
    dealer.setsockopt(zmq.CURVE_SECRETKEY, bytes.fromhex(secret))
    dealer.setsockopt(zmq.CURVE_PUBLICKEY, bytes.fromhex(public))
    dealer.connect(f"tcp://127.0.0.1:{port}")
    while True:
        dealer.send_multipart([FRAME] * FRAMES)


if __name__ == "__main__":
    main(*sys.argv[1:])
