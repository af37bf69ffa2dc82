"""The commands of a peer. Nothing that loads torch is imported before a command needs it."""

import click

from peer.cli.data import data_commands
from peer.cli.evaluate import evaluate
from peer.cli.join import join
from peer.cli.launch import launch
from peer.cli.methods import methods
from peer.cli.relay import relay
from peer.cli.simulate import simulate
from peer.cli.start import start
from peer.cli.verify import verify
from protocol.console import Commands

__all__ = ["main"]


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="kinfolk")
def main() -> None:
    """Peer-to-peer personalised federated learning."""


for command in (data_commands, evaluate, join, launch, methods, relay, simulate, start, verify):
    main.add_command(command)
