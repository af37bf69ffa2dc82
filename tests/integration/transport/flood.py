"""A member that fills others' memory: messages of very many frames, each within the limit.

Run as a process of its own: python -m tests.integration.transport.flood PORT SERVER_KEY SECRET KEY
"""

import sys

import zmq

FRAME = b"x" * 4000
FRAMES = 100_000  # 400 MB: none of it is handed over before the last frame has come


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
