"""A member that fills others' memory: messages of very many frames, each within the limit.

Run as a process of its own, with one connection to each port:
python -m tests.integration.transport.flood SERVER_KEY SECRET KEY FRAMES PORT...
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
def flooding(
    *ports: int, server_key: bytes, keys: Identity, frames: int = FRAMES
) -> Iterator[None]:
    """A member at ports of this machine that floods each as long as it is let."""
    words = [key.hex() for key in (server_key, keys.curve_secret, keys.curve_public)]
    numbers = map(str, (frames, *ports))
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, *words, *numbers],
        stderr=subprocess.DEVNULL,  # libzmq ends a sender that is cut in the middle of a message
    )
    try:
        yield
    finally:
        process.kill()
        process.wait()


def main(server_key: str, secret: str, public: str, frames: str, *ports: str) -> None:
    context = zmq.Context()
    dealers = []
    for port in ports:
        dealer = context.socket(zmq.DEALER)
        dealer.setsockopt(zmq.CURVE_SERVERKEY, bytes.fromhex(server_key))
        dealer.setsockopt(zmq.CURVE_SECRETKEY, bytes.fromhex(secret))
        dealer.setsockopt(zmq.CURVE_PUBLICKEY, bytes.fromhex(public))
        dealer.connect(f"tcp://127.0.0.1:{port}")
        dealers.append(dealer)
    while True:
        for dealer in dealers:
            dealer.send_multipart([FRAME] * int(frames))


if __name__ == "__main__":
    main(*sys.argv[1:])
