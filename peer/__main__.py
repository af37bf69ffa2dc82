"""`python -m peer`: the same as the command `peer`."""

from peer.cli import main

if __name__ == "__main__":
    main(prog_name="peer")
