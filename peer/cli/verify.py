"""`peer verify A B`: did two runs learn the same?"""

from pathlib import Path

import click

from peer.verify import verify as compare

__all__ = ["verify"]

DIFFERENT = 1  # exit code


@click.command()
@click.argument("left", type=click.Path(path_type=Path), metavar="A")
@click.argument("right", type=click.Path(path_type=Path), metavar="B")
def verify(left: Path, right: Path) -> int:
    """Compare the run directories A and B: who took part in each round, then every tensor.

    Ends with 0 when they are the same, and with 1 and the first round, peer and tensor that differ.
    """
    verdict = compare(left, right)
    if verdict.first is None:
        relays = {0: "", 1: " and a relay"}.get(verdict.relays, f" and {verdict.relays} relays")
        click.echo(
            f"the same: {verdict.snapshots} snapshots of {verdict.peers} peers{relays} "
            f"in {verdict.rounds} rounds"
        )
        return 0
    click.echo(f"different: {verdict.first}")
    return DIFFERENT
