"""A peer's personal model, read back from its file and used: what `peer eval` needs.

The file is data from who knows where: its card is checked line by line, and code that it names is
imported only where a person has named the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from peer.bench import MODEL_FILE
from peer.data import Shard
from peer.data.fields import Kind, match_fields, parse_object
from peer.evaluate import Score, evaluate
from peer.examples import Examples
from peer.methods import make_method
from peer.models.registry import build_model
from peer.models.split import SplitModel
from peer.options.fields import Value
from peer.options.recipe import SLOTS, expand
from peer.settings import DEFAULT_PRESET
from protocol.errors import DataError, ModelError, OperatorError
from protocol.params import Params

__all__ = ["PersonalModel", "load_personal"]

MAX_CARD_CHARS = 1 << 20

_CARD: Mapping[str, Kind] = {
    "peer": Kind(str),
    "round": Kind(int),
    "served": Kind(str),
    "model": Kind(str),
    "norm": Kind(str),
    "input_shape": Kind(list, int),
    "classes": Kind(list, str),
    "domain": Kind(str),
    "transform": Kind(dict),
    "options": Kind(dict),
}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PersonalModel:
    peer: str
    round_no: int
    classes: tuple[str, ...]
    model: SplitModel
    params: Params
    buffers: Params

    def evaluate(self, shard: Shard, split: str) -> Score:
        """Score it on one split of a shard.

        Raises:
            DataError: inputs or classes are not those that it was trained on, or the split is
                empty.
        """
        if shard.input_shape != self.model.input_shape:
            raise DataError(
                f"{shard.name} has inputs of {_sides(shard.input_shape)}, the model of {self.peer} "
                f"takes {_sides(self.model.input_shape)}"
            )
        if shard.classes != self.classes:
            raise DataError(
                f"{shard.name} has the classes {_few(shard.classes)}, the model of {self.peer} "
                f"knows {_few(self.classes)}"
            )
        part = getattr(shard, split)
        examples = Examples(torch.from_numpy(part.x), torch.from_numpy(part.y))
        score = evaluate(self.model, self.params, self.buffers, examples)
        if score is None:
            raise DataError(f"the {split} split of {shard.name} is empty")
        return score


def load_personal(path: Path, *, trusted: str | None = None) -> PersonalModel:
    """Read a model.safetensors, or the one in a peer's folder, and rebuild its model.

    Args:
        path: of the file or the folder.
        trusted: `package.module:factory` that may be imported to rebuild the model.

    Raises:
        ModelError: no such file, torn, not of ours, or its numbers do not fit its model.
    """
    file = path / MODEL_FILE if path.is_dir() else path
    card, tensors = _read(file)
    try:
        fields: dict[str, Any] = match_fields(card, _CARD, "its card")
        model = _rebuilt(fields, trusted)
        params, buffers = _placed(model, tensors)
    except OperatorError as error:
        raise ModelError(f"{file}: {error.args[0]}", hint=error.hint) from None
    return PersonalModel(
        peer=fields["peer"],
        round_no=fields["round"],
        classes=tuple(fields["classes"]),
        model=model,
        params=params,
        buffers=buffers,
    )


def _read(file: Path) -> tuple[Mapping[str, object], dict[str, Tensor]]:
    if not file.is_file():
        raise ModelError(
            f"{file} is not there", hint="give a peer's folder, RUN/PEER, or its model.safetensors"
        )
    try:
        with safe_open(file, framework="pt") as opened:
            text = (opened.metadata() or {}).get("kinfolk", "")
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 - no mapping
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{file} cannot be read: {error}") from None
    if not text or len(text) > MAX_CARD_CHARS:
        raise ModelError(f"{file} is not a personal model: it has no card of Kinfolk's")
    try:
        return parse_object(text, f"the card of {file}"), tensors
    except DataError as error:
        raise ModelError(str(error.args[0])) from None


def _rebuilt(card: Mapping[str, Any], trusted: str | None) -> SplitModel:
    """Build the module as the run's solver had it; its initial numbers are not used."""
    name: str = card["model"]
    if ":" in name and name != trusted:
        raise ModelError(
            f"it was built by the code {name}", hint=f"give --model {name} to run that code"
        )
    options: dict[str, Value] = {
        key: value
        for key, value in card["options"].items()
        if isinstance(value, str | int | float | bool)
    }
    of_slots = {key: v for key, v in options.items() if key.split(".")[0] in SLOTS}
    method = make_method(expand(str(options.get("method", DEFAULT_PRESET)), of_slots))
    sides, num_classes = tuple(card["input_shape"]), len(card["classes"])
    return method.solver.adapt(build_model(name, sides, num_classes, card["norm"], seed=0))


def _placed(model: SplitModel, tensors: Mapping[str, Tensor]) -> tuple[Params, Params]:
    """Sort the file's tensors into parameters and buffers."""
    wanted = {**model.start.params, **model.start.buffers}
    if tensors.keys() != wanted.keys():
        odd = sorted(tensors.keys() ^ wanted.keys())
        raise ModelError(f"its tensors are not those of {model.name}: {_few(odd)}")
    for name, tensor in tensors.items():
        if tensor.shape != wanted[name].shape or tensor.dtype != wanted[name].dtype:
            raise ModelError(
                f"its {name} is {tensor.dtype} of {tuple(tensor.shape)}, {model.name} has "
                f"{wanted[name].dtype} of {tuple(wanted[name].shape)}"
            )
    params = {name: tensors[name] for name in model.start.params}
    return params, {name: tensors[name] for name in model.start.buffers}


def _few(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _sides(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))
