"""What every solver promises: the contract of peer/solvers/base.py, as a class of tests.

A subclass gives `solver`.
"""

import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor

from peer.examples import Examples
from peer.models.registry import build_model
from peer.models.split import SplitModel
from peer.options.methods import TrainOptions
from peer.seeding import forked
from peer.solvers.base import Opening, Solver
from peer.task import LocalTask
from protocol.params import Params, State
from protocol.round import Trained
from tests.unit.methods.making import silent, small_model, small_task


def copied(params: Params) -> Params:
    return {name: tensor.clone() for name, tensor in params.items()}


def restored(state: State) -> State:
    """Through a file's bytes, in which a section without tensors leaves no trace."""
    flat = {f"{s}/{n}": t.clone() for s, params in state.items() for n, t in params.items()}
    sections: dict[str, dict[str, Tensor]] = {}
    for key, tensor in load(save(flat)).items():
        section, _, name = key.partition("/")
        sections.setdefault(section, {})[name] = tensor
    return sections


def assert_same(one: tuple[Trained, State], other: tuple[Trained, State]) -> None:
    """Bit for bit."""
    points = (
        [t.params, t.buffers, t.extras, t.personal or {}, *(s[k] for k in sorted(s) if s[k])]
        for t, s in (one, other)
    )
    for left, right in zip(*points, strict=True):
        assert left.keys() == right.keys()
        assert all(torch.equal(tensor, right[name]) for name, tensor in left.items())


class SolverContract:
    solver: Solver
    norm = "batch"  # of the small model; where examples are clipped one by one, "none"

    def adapted(self, norm: str = "") -> SplitModel:
        return self.solver.adapt(small_model(norm or self.norm))

    def train(self, task: LocalTask, state: State | None = None) -> tuple[Trained, State]:
        start = task.model.start
        before = self.solver.init(start) if state is None else state
        with forked(7):
            return self.solver.train(before, start, task, 7, silent)

    def test_adapting_is_the_same_everywhere_and_changes_nothing_given(self) -> None:
        model = small_model()
        before = copied(model.start.params)
        one, same = self.solver.adapt(model), self.solver.adapt(model)
        assert all(torch.equal(t, same.start.params[n]) for n, t in one.start.params.items())
        assert all(torch.equal(t, model.start.params[n]) for n, t in before.items())

    def test_the_layout_is_kept(self) -> None:
        model = self.adapted()
        trained, _ = self.train(small_task(model))
        for found, expected in (
            (trained.params, model.start.params),
            (trained.buffers, model.start.buffers),
        ):
            assert list(found) == list(expected)
            for name, tensor in expected.items():
                assert (found[name].shape, found[name].dtype) == (tensor.shape, tensor.dtype)
                assert not found[name].requires_grad

    def test_the_start_is_not_written_to(self) -> None:
        model = self.adapted()
        params, buffers = copied(model.start.params), copied(model.start.buffers)
        trained, _ = self.train(small_task(model))
        assert all(torch.equal(model.start.params[n], t) for n, t in params.items())
        assert all(torch.equal(model.start.buffers[n], t) for n, t in buffers.items())
        assert any(not torch.equal(trained.params[n], t) for n, t in params.items())

    def test_equal_arguments_give_equal_results_dropout_included(self) -> None:
        model = self.solver.adapt(build_model("craft-cnn", (1, 16, 16), 3, "group", 0))
        chance = torch.Generator().manual_seed(0)
        inputs = torch.randn(8, 1, 16, 16, generator=chance)
        targets = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])
        task = LocalTask(model, Examples(inputs, targets), TrainOptions(batch_size=4))
        assert_same(self.train(task), self.train(task))

    def test_the_evidence_is_that_of_the_task(self) -> None:
        task = small_task(self.adapted(), size=10)
        trained, _ = self.train(task)
        assert trained.num_examples == 10
        assert trained.class_counts == task.class_counts
        assert trained.num_steps >= 1
        assert trained.nova_a > 0.0
        assert trained.lr > 0.0
        assert trained.train_loss > 0.0

    def test_progress_counts_every_step_up_to_what_was_planned(self) -> None:
        task = small_task(self.adapted(), size=10)
        seen: list[tuple[int, int]] = []
        start = task.model.start
        trained, _ = self.solver.train(
            self.solver.init(start), start, task, 0, lambda done, of: seen.append((done, of))
        )
        planned = seen[0][1]  # a solver that trains two models takes more steps than one counts
        assert planned % trained.num_steps == 0
        assert seen == [(step, planned) for step in range(1, planned + 1)]

    @pytest.mark.parametrize("norm", ["none", "batch"])
    def test_its_state_survives_being_stored(self, norm: str) -> None:
        task = small_task(self.adapted(norm))
        _, state = self.train(task)
        assert_same(self.train(task, restored(state)), self.train(task, state))

    def test_its_state_is_not_written_to(self) -> None:
        task = small_task(self.adapted())
        _, state = self.train(task)
        before = {section: copied(params) for section, params in state.items()}
        _, after = self.train(task, state)
        for section, params in before.items():
            assert all(torch.equal(state[section][n], t) for n, t in params.items())
            assert after[section].keys() == params.keys()  # and its layout is kept

    def test_what_is_sent_along_has_the_layout_of_the_opening(self) -> None:
        model = self.adapted()
        trained, _ = self.train(small_task(model))
        opening = self.solver.opening(model) if isinstance(self.solver, Opening) else {}
        assert [(n, t.shape, t.dtype) for n, t in trained.extras.items()] == [
            (n, t.shape, t.dtype) for n, t in opening.items()
        ]

    @pytest.mark.parametrize("size", [1, 5, 9])
    def test_a_last_batch_of_one_example_trains_with_batchnorm(self, size: int) -> None:
        trained, _ = self.train(small_task(self.adapted(), size=size))
        assert all(bool(t.isfinite().all()) for t in trained.params.values())

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
    def test_every_dtype_trains(self, dtype: torch.dtype) -> None:
        model = self.solver.adapt(small_model(dtype=dtype))
        trained, _ = self.train(small_task(model))
        assert {t.dtype for t in trained.params.values()} == {dtype}

    def test_autocast_trains(self) -> None:
        trained, _ = self.train(small_task(self.adapted(), precision="bf16"))
        assert {t.dtype for t in trained.params.values()} == {torch.float32}
