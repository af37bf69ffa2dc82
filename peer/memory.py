"""What a trainer remembers between two rounds, as a file: from it another process goes on.

A safetensors file whose name is the digest of its bytes, so a torn one is never taken for whole.
What the published snapshot holds already is not written twice: it is read from there. Nothing else
carries over, because everything random derives from run, peer, purpose and round.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from torch import Tensor

from peer.durable import write_whole
from peer.layout import memory_file, snapshot_file
from protocol.errors import DataError
from protocol.ids import PeerId
from protocol.params import Params, State
from protocol.round import Trained
from protocol.wire.digest import digest

__all__ = ["Memory", "read_memory", "write_memory"]

VERSION = 1
_SECTIONS = ("params", "buffers", "extras", "personal")
_NUMBERS = ("num_examples", "num_steps", "nova_a", "lr", "train_loss", "start_loss")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Memory:
    """A trainer's memory after it has published a round."""

    round_no: int
    trained: Trained  # the newest result, in full
    sent: Trained | None = None  # what the others are told in its place, where that differs
    states: Mapping[str, State]  # of mixer, solver and common model, by these names
    norms: Mapping[PeerId, float]  # of what was admitted last, by sender
    base: bytes = b""  # digest of the start point that `trained` came from
    aggregator: bytes = b""  # digest of the aggregator's memory there
    degree: int = 0
    num_rounds: int = 0  # trained so far


def write_memory(directory: Path, memory: Memory, *, published: Trained | None) -> bytes:
    """Write it beside the snapshots; not synced.

    Args:
        directory: the peer's run directory.
        memory: what to keep.
        published: what the snapshot of this round holds; tensors of it are not written again.

    Returns:
        The digest that names the file.

    Raises:
        OSError: the disk is full, or the folder cannot be written.
    """
    tensors: dict[str, Tensor] = {}
    there: list[list[str]] = []  # result, section, name: those that the snapshot holds
    results = {"trained": memory.trained}
    if memory.sent is not None:
        results["sent"] = memory.sent
    for which, result in results.items():
        for section, name, tensor in _points(result):
            if published is not None and _holds(published, section, name, tensor):
                there.append([which, section, name])
            else:
                tensors[json.dumps([which, section, name])] = tensor
    slots: list[tuple[str, str, list[str]]] = []  # names in order: digests of a point depend on it
    for slot, state in memory.states.items():
        for key, params in state.items():
            slots.append((slot, key, list(params)))
            tensors |= {json.dumps([slot, key, name]): t for name, t in params.items()}
    card = {
        "version": VERSION,
        "round": memory.round_no,
        "base": memory.base.hex(),
        "aggregator": memory.aggregator.hex(),
        "degree": memory.degree,
        "num_rounds": memory.num_rounds,
        "results": {which: _evidence(result) for which, result in results.items()},
        "norms": dict(memory.norms),
        "states": list(memory.states),
        "slots": slots,
        "published": there,
    }
    ready = {name: t.detach().contiguous().cpu().clone() for name, t in tensors.items()}
    content = save(ready, metadata={"kinfolk": json.dumps(card)})
    named = digest(content)
    path = memory_file(directory, named)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, content, sync=False)
    return named


def read_memory(directory: Path, name: bytes, device: torch.device) -> Memory:
    """Read what `write_memory` wrote, and what it left to the snapshot.

    Raises:
        DataError: a file of it is not there, torn, or of another version.
    """
    path = memory_file(directory, name)
    try:
        content = path.read_bytes()
        if digest(content) != name:
            raise DataError(f"{path} is torn: its bytes are not those that its name says")
        tensors = {key: tensor.to(device) for key, tensor in load(content).items()}
        with safe_open(path, framework="pt") as opened:
            card = json.loads((opened.metadata() or {})["kinfolk"])
        if card["version"] != VERSION:
            raise DataError(f"{path} has version {card['version']}, this Kinfolk reads {VERSION}")
        return _remembered(directory, card, tensors, device)
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}") from None


def _points(result: Trained) -> Iterator[tuple[str, str, Tensor]]:
    """Every tensor of a result: its section, its name, and itself."""
    for section in _SECTIONS:
        params: Params = getattr(result, section) or {}
        yield from ((section, name, tensor) for name, tensor in params.items())


def _holds(published: Trained, section: str, name: str, tensor: Tensor) -> bool:
    """Whether the snapshot has it; what is personal never leaves a peer."""
    return section != "personal" and getattr(published, section).get(name) is tensor


def _evidence(result: Trained) -> Mapping[str, object]:
    """What of a result is no tensor, and the order of those that are."""
    return {
        "numbers": {name: getattr(result, name) for name in _NUMBERS},
        "class_counts": list(result.class_counts),
        "personal": result.personal is not None,
        "order": [[section, name] for section, name, _ in _points(result)],
    }


def _remembered(
    directory: Path, card: Mapping[str, Any], tensors: Mapping[str, Tensor], device: torch.device
) -> Memory:
    found = {tuple(json.loads(path)): tensor.clone() for path, tensor in tensors.items()}
    if card["published"]:
        with safe_open(snapshot_file(directory, card["round"]), framework="pt") as opened:
            for which, section, name in card["published"]:
                # A copy of its own, as well aligned as any: views of a file may not be.
                tensor = opened.get_tensor(f"{section}/{name}").clone()
                found[which, section, name] = tensor.to(device)
    results = {which: _result(which, told, found) for which, told in card["results"].items()}
    states: dict[str, dict[str, dict[str, Tensor]]] = {slot: {} for slot in card["states"]}
    for slot, key, names in card["slots"]:
        states[slot][key] = {name: found[slot, key, name] for name in names}
    return Memory(
        round_no=card["round"],
        trained=results["trained"],
        sent=results.get("sent"),
        states=states,
        norms={PeerId(name): size for name, size in card["norms"].items()},
        base=bytes.fromhex(card["base"]),
        aggregator=bytes.fromhex(card["aggregator"]),
        degree=card["degree"],
        num_rounds=card["num_rounds"],
    )


def _result(
    which: str, told: Mapping[str, Any], found: Mapping[tuple[str, ...], Tensor]
) -> Trained:
    points: dict[str, dict[str, Tensor]] = {section: {} for section in _SECTIONS}
    for section, name in told["order"]:
        points[section][name] = found[which, section, name]
    return Trained(
        params=points["params"],
        buffers=points["buffers"],
        extras=points["extras"],
        personal=points["personal"] if told["personal"] else None,
        class_counts=tuple(told["class_counts"]),
        **told["numbers"],
    )
