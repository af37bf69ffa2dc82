"""`peer join STRING`: store the one line that a coordinator printed."""

import os

import click

from protocol.home import find_home, private_folder, write_private
from protocol.joinstring import JoinString

__all__ = ["join"]


@click.command()
@click.argument("string")
def join(string: str) -> None:
    """Store STRING, the line that `coordinator start` printed, for every `peer start` here."""
    parsed = JoinString.parse(string)
    home = find_home(os.environ)
    private_folder(home.root)
    write_private(home.stored_join, f"{parsed}\n".encode())
    click.echo(f"stored in {home.stored_join}: the coordinator at {parsed.address}")
