"""`python -m coordinator`: the same as the command `coordinator`."""

from coordinator.cli import main

if __name__ == "__main__":
    main(prog_name="coordinator")
