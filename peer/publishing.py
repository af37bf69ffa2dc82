"""What a trainer writes to be served: the parts of a round, and those of the round before."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from peer.exchange import Origin, content_digest, write_contribution
from peer.mixers.replicated import unpack_state
from peer.work import Published, SnapshotRef
from protocol.params import NOTHING, Params, State, sub
from protocol.round import Start, Trained
from protocol.wire.codec import decode_document
from protocol.wire.messages import Part, SnapshotManifest

__all__ = ["Shelving", "state_of", "update_of"]

KEPT_ROUNDS = 2  # what the server serves: this one and the one before


class Shelving:
    """The folder of one node's snapshots."""

    def __init__(self, directory: Path) -> None:
        self._folder = directory / "state" / "snapshots"
        self._rounds: list[list[Path]] = []  # files by round, oldest first

    def publish(
        self, origin: Origin, shared: Trained | None, more: Sequence[tuple[Part, Trained]] = ()
    ) -> Published:
        """Write what leaves this node, and drop the round before the last.

        Args:
            origin: whose, of which round.
            shared: the result; None shares nothing, which is an empty snapshot.
            more: other parts of the round.

        Raises:
            OSError: the disk is full.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        result = shared if shared is not None else _EMPTY
        files: list[Path] = []
        refs: list[SnapshotRef] = []
        for part, trained in ((Part.RESULT, result), *more):
            kind = "" if part is Part.RESULT else f".{part}"
            file = self._folder / f"{origin.round_no:08d}{kind}.safetensors"
            refs.append(write_contribution(file, replace(origin, part=part), trained))
            files.append(file)
        self._rounds = [*self._rounds, files][-KEPT_ROUNDS:]
        kept = {file for round_files in self._rounds for file in round_files}
        for old in set(self._folder.glob("*.safetensors")) - kept:
            old.unlink(missing_ok=True)  # an earlier process's too; who reads one has it mapped
        tensors = decode_document(SnapshotManifest, refs[0].manifest).tensors  # digested already
        content = content_digest(tensors)
        return Published(origin.round_no, refs[0], content, tuple(refs[1:]))


_EMPTY = Trained(params=NOTHING, num_examples=0, num_steps=0)


def update_of(start: Start, trained: Trained, shared: Trained) -> Trained:
    """Start minus trained of what is shared: for a relay whose own start is another one."""
    moved = {name: trained.params[name] for name in shared.params}
    began = {name: start.params[name] for name in shared.params}
    return replace(shared, params=sub(began, moved), extras=NOTHING)


def state_of(state: State, shared: Trained) -> Trained:
    """The common start and the aggregator's memory of this round, for whoever lost them."""
    start, memory = unpack_state(state)
    extras: dict[str, Params] = {"start": start.extras}
    extras |= {f"memory/{key}": params for key, params in memory.items()}
    flat = {f"{key}/{name}": t for key, params in extras.items() for name, t in params.items()}
    return replace(shared, params=start.params, buffers=start.buffers, extras=flat)
