"""What a trainer writes to be served: the parts of a round, and those of some before it."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from peer.checkpoint import map_snapshot
from peer.durable import step
from peer.exchange import (
    Origin,
    content_digest,
    hold_contribution,
    sections_of,
    write_contribution,
)
from peer.layout import round_of, snapshot_file, snapshot_folder
from peer.memory import Memory, write_memory
from peer.mixers.replicated import unpack_state
from peer.work import Published, SnapshotRef
from protocol.codecs import Coder
from protocol.errors import DataError, LayoutError
from protocol.params import NOTHING, Params, State, sub
from protocol.round import Start, Trained
from protocol.steps import Stepper
from protocol.tensors import SECTIONS, Sections, dtype_of
from protocol.wire.codec import decode_document
from protocol.wire.fields import as_text
from protocol.wire.messages import SnapshotManifest, TensorSpec
from protocol.wire.shelf import SNAPSHOTS_KEPT

__all__ = [
    "Shelving",
    "as_read",
    "coded",
    "published_before",
    "remembered",
    "state_of",
    "stepped",
    "update_of",
]


class Shelving:
    """The folder of one node's snapshots."""

    def __init__(self, directory: Path, *, newest: int = 0) -> None:
        """Prepare.

        Args:
            directory: the node's run directory.
            newest: the round that an earlier process published last; 0 where there was none.
        """
        self._directory = directory
        self._rounds: list[list[Path]] = []  # files by round, oldest first
        self._held: list[list[int]] = []  # descriptors by round: what no disk took
        for file in sorted(snapshot_folder(directory).glob("*.safetensors")):
            number, is_first = round_of(file), not self._rounds
            if number is None or number > newest:
                continue  # of a round that was never finished
            if is_first or round_of(self._rounds[-1][0]) != number:
                self._rounds.append([])
            self._rounds[-1].append(file)

    def publish(
        self,
        origin: Origin,
        shared: Trained | None,
        more: Sequence[tuple[Origin, Trained]] = (),
        *,
        kept: int = SNAPSHOTS_KEPT,
    ) -> Published:
        """Write what leaves this node, and drop the rounds that nobody will ask for any more.

        Where the disk does not take it, it is served from memory, and `trouble` says why.

        Args:
            origin: whose, of which round.
            shared: the result; None shares nothing, which is an empty snapshot.
            more: other parts of the round, and what they are.
            kept: how many rounds stay, this one among them.

        Raises:
            OSError: there is no room in memory either.
        """
        result = shared if shared is not None else _EMPTY
        files: list[Path] = []
        held: list[int] = []
        refs: list[SnapshotRef] = []
        trouble = ""
        for of_part, trained in ((origin, result), *more):
            file = snapshot_file(self._directory, origin.round_no, of_part.part)
            try:
                refs.append(self._written(file, of_part, trained))
                files.append(file)
            except DataError as error:
                trouble = as_text(error.args[0])
                ref, descriptor = hold_contribution(of_part, trained)
                refs.append(ref)
                held.append(descriptor)
        self._keep(files, held, kept)
        tensors = decode_document(SnapshotManifest, refs[0].manifest).tensors  # digested already
        content = content_digest(tensors)
        return Published(origin.round_no, refs[0], content, tuple(refs[1:]), trouble=trouble)

    def _written(self, file: Path, origin: Origin, trained: Trained) -> SnapshotRef:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = error.strerror or error
            raise DataError(f"{file.parent} cannot be written: {reason}") from None
        return write_contribution(file, origin, trained)

    def _keep(self, files: list[Path], held: list[int], kept: int) -> None:
        """Let go of what is older than the last rounds; who reads a file has it mapped."""
        self._rounds = [*self._rounds, files][-kept:]
        self._held.append(held)
        for descriptor in [d for old in self._held[:-kept] for d in old]:
            os.close(descriptor)
        self._held = self._held[-kept:]
        stay = {file for round_files in self._rounds for file in round_files}
        for old in set(snapshot_folder(self._directory).glob("*.safetensors")) - stay:
            step("remove", old)
            old.unlink(missing_ok=True)


def remembered(
    directory: Path, published: Published, memory: Memory, shared: Trained | None, trouble: str = ""
) -> Published:
    """Write what the trainer remembers beside what it has published.

    Args:
        directory: the node's run directory.
        published: this round's parts. One that no disk took means that nothing is remembered of
            the round: a process that goes on would have nothing to serve.
        memory: what to keep.
        shared: what the published result holds.
        trouble: what else could not be written.
    """
    trouble = published.trouble or trouble
    if not published.trouble:
        try:
            name = write_memory(directory, memory, published=shared)
            return replace(published, memory=name, trouble=as_text(trouble))
        except OSError as error:
            trouble = f"{directory} cannot be written: {error.strerror or error}"
    return replace(published, trouble=as_text(trouble))


def coded(coder: Coder, shared: Trained, sent: Trained) -> tuple[Trained, Trained]:
    """What travels in place of what is shared, and the whole result as its readers will see it."""
    travels = coder.encode(sections_of(shared))
    coded_ones = replace(
        shared, params=travels["params"], buffers=travels["buffers"], extras=travels["extras"]
    )
    return coded_ones, as_read(sent, coder.decode(travels))


def as_read(sent: Trained, read: Sections) -> Trained:
    """The whole result, with what is shared of it as its readers will see it."""

    def seen(whole: Params, section: str) -> Params:
        return {name: read[section].get(name, t).to(t.device) for name, t in whole.items()}

    return replace(
        sent,
        params=seen(sent.params, "params"),
        buffers=seen(sent.buffers, "buffers"),
        extras=seen(sent.extras, "extras"),
    )


def published_before(ref: SnapshotRef | None) -> Sections | None:
    """What the others can hold; None where nothing was published, or it is not here any more."""
    if ref is None:
        return None
    try:
        return map_snapshot(ref)[1]
    except (LayoutError, OSError):
        return None  # somebody took it away: the next result goes out whole


def stepped(
    stepper: Stepper, before: Sections | None, shared: Trained
) -> tuple[Trained, Trained | None]:
    """What is published in place of what is shared, and the step to it from what was before.

    Args:
        stepper: of the run.
        before: what was published last, on the CPU; None at first.
        shared: what this peer would have the others see; on any device.

    Returns:
        Where the step leads, and the step. Without a version to step from, or where a number is
        not finite, the shared itself and no step.
    """
    if before is None:
        return shared, None
    leads: dict[str, dict[str, Tensor]] = {}
    steps: dict[str, dict[str, Tensor]] = {}
    for section, tensors in sections_of(shared).items():
        leads[section], steps[section] = {}, {}
        for name, tensor in tensors.items():
            found = _step_of(stepper, before[section].get(name), tensor)
            if found is None:
                return shared, None
            steps[section][name], leads[section][name] = found

    def of(sections: Sections) -> Trained:
        params, buffers, extras = (sections[section] for section in SECTIONS)
        return replace(shared, params=params, buffers=buffers, extras=extras)

    return of(leads), of(steps)


def _step_of(
    stepper: Stepper, before: Tensor | None, wanted: Tensor
) -> tuple[Tensor, Tensor] | None:
    """A tensor's step and where it leads; None where there is none."""
    wanted = wanted.detach().cpu().contiguous()
    spec = TensorSpec("params", "", dtype_of(wanted), tuple(wanted.shape), b"")
    step_spec = stepper.coded(spec)
    if step_spec == spec:
        return wanted, wanted
    if before is None or before.shape != wanted.shape:
        return None
    found = stepper.encode(before.contiguous().numpy(), wanted.numpy())
    if found is None:
        return None
    step, leads = found
    return torch.from_numpy(step.view(step_spec.dtype)).reshape(step_spec.shape), torch.from_numpy(
        leads
    )


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
