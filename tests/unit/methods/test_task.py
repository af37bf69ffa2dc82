"""A peer's learning problem: batches, losses, probes and scores."""

import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it

from peer.evaluate import cross_entropy, evaluate
from peer.examples import Examples
from peer.models.split import Mode
from peer.probe import LocalProbe
from peer.task import LocalTask
from protocol.errors import DataError, LayoutError
from protocol.params import Params
from tests.unit.methods.making import small_model, small_task


def labels(task: LocalTask, seed: int) -> list[list[int]]:
    return [batch.targets.tolist() for batch in task.batches(seed)]


def as_they_were(params: Params, before: Params) -> bool:
    return all(torch.equal(params[name], before[name]) for name in before)


def copied(params: Params) -> Params:
    return {name: tensor.clone() for name, tensor in params.items()}


def test_a_pass_shows_every_example_once_and_keeps_the_last_small_batch() -> None:
    task = small_task(small_model(), size=10, batch_size=4)
    seen = list(task.batches(3))
    assert [len(batch.targets) for batch in seen] == [4, 4, 2]
    assert task.num_batches == 3
    order = torch.cat([batch.inputs for batch in seen])
    assert sorted(order.flatten(1).sum(1).tolist()) == sorted(
        task.examples.inputs.flatten(1).sum(1).tolist()
    )


def test_equal_seeds_give_equal_passes() -> None:
    task = small_task(small_model(), size=30)
    assert labels(task, 1) == labels(task, 1)
    assert labels(task, 1) != labels(task, 2)


def test_training_moves_no_buffer_but_returns_new_ones() -> None:
    task = small_task(small_model("batch"))
    start = task.model.start
    before = copied(start.buffers)
    _, moved = task.loss(start.params, start.buffers, next(task.batches(0)))
    assert as_they_were(start.buffers, before)
    assert moved["body.1.num_batches_tracked"].item() == 1
    assert not torch.equal(moved["body.1.running_mean"], before["body.1.running_mean"])


def test_batchnorm_takes_a_batch_of_one_by_its_running_statistics() -> None:
    task = small_task(small_model("batch"), size=1)
    start = task.model.start
    batch = next(task.batches(0))
    loss, moved = task.loss(start.params, start.buffers, batch)
    scores, _ = task.model.logits(start.params, start.buffers, batch.inputs, Mode.EVALUATE)
    assert loss.item() == F.cross_entropy(scores, batch.targets).item()
    assert as_they_were(moved, start.buffers)


def test_the_full_loss_runs_over_all_data() -> None:
    task = small_task(small_model(dtype=torch.float64), size=10)
    start = task.model.start
    scores, _ = task.model.logits(start.params, {}, task.examples.inputs, Mode.EVALUATE)
    expected = F.cross_entropy(scores, task.examples.targets).item()
    assert task.full_loss(start.params, start.buffers) == pytest.approx(expected, abs=1e-14)


def test_no_example_and_a_label_without_a_class_are_refused() -> None:
    model = small_model()
    with pytest.raises(DataError, match="no training example"):
        LocalTask(model, Examples(torch.zeros(0, 1, 6, 6), torch.zeros(0, dtype=torch.int64)))
    with pytest.raises(DataError, match=r"labels lie in \[0, 3\], the model has 3 classes"):
        LocalTask(model, Examples(torch.zeros(2, 1, 6, 6), torch.tensor([0, 3])))
    with pytest.raises(DataError, match="do not pair up"):
        Examples(torch.zeros(2, 1, 6, 6), torch.tensor([0]))


def test_parameters_of_another_model_are_refused() -> None:
    task = small_task(small_model())
    with pytest.raises(LayoutError, match="not the parameters and buffers of small"):
        task.loss({"w": torch.zeros(1)}, {}, next(task.batches(0)))


def test_a_probe_asks_the_same_batches_for_equal_seeds() -> None:
    task = small_task(small_model(), size=20)
    one, same = (LocalProbe.draw(task, {}, 5, 2) for _ in range(2))
    assert one.num_batches == 2
    assert torch.equal(one.targets(1), same.targets(1))
    assert one.loss(task.model.start.params) == same.loss(task.model.start.params)


def test_a_probe_asks_one_pass_at_most() -> None:
    task = small_task(small_model(), size=10, batch_size=4)
    assert LocalProbe.draw(task, {}, 0, 99).num_batches == 3


def test_a_probe_uses_the_batch_s_statistics_and_leaves_the_running_ones_alone() -> None:
    task = small_task(small_model("batch"))
    params, buffers = task.model.start.params, copied(task.model.start.buffers)
    wild = {n: t + 100.0 if n.endswith("mean") else t for n, t in buffers.items()}
    one, other = (LocalProbe.draw(task, b, 0, 1) for b in (buffers, wild))
    assert one.loss(params) == other.loss(params)
    assert torch.equal(one.features(params), other.features(params))
    assert as_they_were(buffers, task.model.start.buffers)


def test_a_classifier_on_the_probes_features_gives_the_probes_loss() -> None:
    task = small_task(small_model(dtype=torch.float64))
    params = task.model.start.params
    probe = LocalProbe.draw(task, {}, 0, 1)
    scores = F.linear(probe.features(params), params["head.weight"], params["head.bias"])
    assert F.cross_entropy(scores, probe.targets()).item() == pytest.approx(probe.loss(params))


def test_cross_entropy_is_exact_where_the_usual_form_cancels() -> None:
    logits = torch.tensor([[50.0, 0.0], [0.0, 0.0], [-30.0, 0.0]])
    losses = cross_entropy(logits, torch.tensor([0, 0, 0])).tolist()
    assert losses == pytest.approx(
        [math.exp(-50), math.log(2), 30 + math.log1p(math.exp(-30))], rel=1e-12, abs=0.0
    )


def test_a_score_counts_by_class() -> None:
    model = small_model()
    # no weight at all: the biases decide, class 1 for every example
    params = {name: torch.zeros_like(t) for name, t in model.start.params.items()}
    params["head.bias"] = torch.tensor([0.0, 1.0, 0.0])
    score = evaluate(
        model, params, {}, Examples(torch.zeros(4, 1, 6, 6), torch.tensor([1, 1, 0, 1]))
    )
    assert score is not None
    assert (score.accuracy, score.num_examples) == (0.75, 4)
    assert score.class_accuracy == (0.0, 1.0, None)
    lead = math.log(2 + math.e)
    assert score.loss == pytest.approx((3 * (lead - 1) + lead) / 4)


def test_an_empty_split_has_no_score() -> None:
    model = small_model()
    empty = Examples(torch.zeros(0, 1, 6, 6), torch.zeros(0, dtype=torch.int64))
    assert evaluate(model, model.start.params, {}, empty) is None


def test_an_output_that_is_not_finite_is_wrong() -> None:
    model = small_model()
    params = {name: t * math.nan for name, t in model.start.params.items()}
    score = evaluate(model, params, {}, Examples(torch.zeros(2, 1, 6, 6), torch.tensor([0, 0])))
    assert score is not None
    assert score.accuracy == 0.0
    assert math.isnan(score.loss)


def test_scores_use_running_statistics() -> None:
    model = small_model("batch")
    chance = torch.Generator().manual_seed(0)
    inputs, targets = torch.randn(6, 1, 6, 6, generator=chance), torch.tensor([0, 1, 2, 0, 1, 2])
    start = model.start
    whole = evaluate(model, start.params, start.buffers, Examples(inputs, targets))
    parts = [
        evaluate(
            model, start.params, start.buffers, Examples(inputs[k : k + 1], targets[k : k + 1])
        )
        for k in range(6)
    ]
    assert whole is not None
    assert whole.loss == pytest.approx(sum(p.loss for p in parts if p) / 6, rel=1e-5)


def test_float64_data_and_models_run_through_the_same_functions() -> None:
    task = small_task(small_model("batch", dtype=torch.float64))
    start = task.model.start
    loss, moved = task.loss(start.params, start.buffers, next(task.batches(0)))
    assert loss.dtype == moved["body.1.running_mean"].dtype == torch.float64
