"""What a peer does with what it finds in its run directory: go on, refuse, or begin anew.

Nothing is ever overwritten unasked.
"""

import shutil
from dataclasses import replace
from pathlib import Path

from peer.chronicle import run_in
from peer.entries import Past
from peer.journal import has_journal, read_past
from peer.layout import check_run, state_folder
from peer.ledger import EVENTS, INFLUENCE, SUMMARY
from peer.work import Prepare
from protocol.errors import ConfigError

__all__ = ["OWN_FILES", "order_from", "take_up"]

MODEL = "model.safetensors"
_ANEW = "--force to remove what is there and start anew"
OWN_FILES = (EVENTS, INFLUENCE, SUMMARY, MODEL)  # beside the state; the log goes on


def take_up(directory: Path, run: bytes, *, resume: bool, force: bool) -> Past:
    """Say where to begin: where an earlier process was, or at the start.

    Args:
        directory: the peer's own, there or not.
        run: the one that is joined.
        resume: go on; where nothing is there, that is at the start.
        force: begin anew: what earlier processes of this peer left is removed.

    Raises:
        ConfigError: there is something, and neither was asked for; it is of another run; it
            cannot be read, or not removed.
    """
    if force:
        _clear(directory)
        return Past()
    before = run_in(directory)
    check_run(directory, before, run, hint=f"give --out another folder, or {_ANEW}")
    past = _past(directory, run)
    if not resume and (before or has_journal(directory)):
        raise ConfigError(
            f"{directory} holds this run already: {_told(past)}",
            hint=f"give --resume to go on, or {_ANEW}",
        )
    return past


def order_from(prepare: Prepare, past: Past) -> Prepare:
    """The order to prepare, from there on."""
    if past.finished is None:
        return prepare
    done = past.finished.published
    return replace(prepare, memory=done.memory, published=(done.snapshot,))


def _past(directory: Path, run: bytes) -> Past:
    try:
        return read_past(directory, run)
    except OSError as error:
        raise ConfigError(
            f"run directory {directory} cannot be read: {error.strerror or error}",
            hint="give --out another folder",
        ) from None


def _told(past: Past) -> str:
    if past.finished is None:
        return "it had begun, and finished no round"
    return f"its newest finished round is {past.finished.round_no}"


def _clear(directory: Path) -> None:
    try:
        if state_folder(directory).exists():
            shutil.rmtree(state_folder(directory))
        for name in OWN_FILES:
            (directory / name).unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{directory} cannot be cleared: {error.strerror or error}",
            hint="give --out another folder",
        ) from None
