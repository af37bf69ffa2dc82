"""Trainers in one process on small real digits, exchanging the files that peers would pull."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from peer.data.card import Card
from peer.data.shard import Split, save_shard
from peer.options.fields import Value
from peer.roles import Role
from peer.settings import complete
from peer.trainer import Trainer
from peer.work import (
    Evaluate,
    Evaluated,
    Inspect,
    Mix,
    Prepare,
    Publish,
    Setting,
    SnapshotRef,
    Train,
)
from peer.work import Input as Part

RUN = bytes(range(16))
DIGITS = tuple("0123456789")


def write_digits(
    path: Path, *, first: int, num: int, num_test: int = 40, num_val: int = 40
) -> Path:
    """Write a shard of 8 x 8 digits: `num` to train on, and others to validate and test."""
    digits = load_digits()
    x = np.round(digits.images * 255 / 16).astype(np.uint8)[..., None]  # (N, 8, 8, 1)
    y = digits.target.astype(np.int64)
    rows = np.arange(first, first + num + num_val + num_test)
    splits = {
        "train": Split(x[rows[:num]], y[rows[:num]]),
        "val": Split(x[rows[num : num + num_val]], y[rows[num : num + num_val]]),
        "test": Split(x[rows[num + num_val :]], y[rows[num + num_val :]]),
    }
    save_shard(path, Card("optdigits", DIGITS), splits)
    return path


class Pupil:
    """One trainer and what its node would tell it."""

    def __init__(self, folder: Path, name: str, num_val: int = 40, /, **options: Value) -> None:
        """Options of the run; `attack` says how this one attacks."""
        attack = str(options.pop("attack", ""))
        self.name = name
        self.folder = folder / name
        self.folder.mkdir()
        number = ord(name[-1]) - ord("a")
        path = folder / f"{name}.npz"
        self.shard = write_digits(path, first=200 * number, num=64, num_val=num_val)
        facts: dict[str, Value] = {
            "data.input": "1x8x8",
            "data.classes": 10,
            "model": "mlp",
            "run.rounds": 3,
        }
        settings = complete({**facts, **options})
        self.trainer = Trainer()
        self.order = Prepare(
            name,
            Role.PEER,
            RUN,
            tuple(Setting(key, value) for key, value in settings.items()),
            str(self.shard),
            "cpu",
            str(self.folder),
            attack,
        )
        self.prepared = self.trainer.prepare(self.order)

    def play(self, round_no: int, inputs: list[SnapshotRef]) -> tuple[SnapshotRef, Evaluated]:
        """Play one round; the snapshot that it published, and its scores."""
        self.mixed = self.trainer.mix(
            Mix(round_no, len(inputs), tuple(Part(ref, 1.0) for ref in inputs), ())
        )
        self.done = self.trainer.train(Train(round_no), lambda _done, _planned: None)
        self.scores = replace(self.trainer.evaluate(Evaluate(round_no)), seconds=0.0)
        self.published = self.trainer.publish(Publish(round_no))
        return self.published.snapshot, self.scores

    def restart(self) -> None:
        """Go on in another process's place, from what was remembered of the last round."""
        self.trainer = Trainer()
        before = self.published
        self.trainer.prepare(
            replace(self.order, memory=before.memory, published=(before.snapshot,))
        )

    def fault(self, neighbour: str, ref: SnapshotRef) -> str:
        return self.trainer.inspect(Inspect(neighbour, ref)).fault
