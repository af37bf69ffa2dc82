"""FedRoD: a fair generic classifier for all, a personal one on top of it that never leaves."""

import math

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it

from peer.evaluate import evaluate
from peer.options.solvers import DescentOptions
from peer.solvers.fedrod import FedRod
from protocol.params import NO_STATE
from tests.unit.families.hamlet import (
    HEAD,
    NAMES,
    OWNED,
    Hamlet,
    assert_equal,
    examples,
    features,
    hamlet,
    initial,
    leaf,
    mean,
    scores,
    step,
    tiny_model,
)
from tests.unit.methods.making import silent, small_model, small_task


def played(rounds: int = 3) -> Hamlet:
    return hamlet("fedrod", solver__epochs=2).play(rounds)


def test_three_rounds_are_those_of_a_naive_twin() -> None:
    starts = {name: initial() for name in OWNED}
    personal = {name: {n: torch.zeros_like(initial()[n]) for n in HEAD} for name in OWNED}
    ends: dict[str, dict[str, torch.Tensor]] = {}
    for _ in range(3):
        for name, start in starts.items():
            data, w = examples(name), start
            prior = torch.tensor(
                [math.log(max(OWNED[name].count(label), 1e-8)) for label in range(3)],
                dtype=torch.float64,
            )
            for _ in range(2):
                w, p = leaf(w), leaf(personal[name])
                z = features(w, data.inputs)
                generic = scores(w, z)
                balanced = F.cross_entropy(generic + prior, data.targets)
                own = F.cross_entropy(generic.detach() + scores(p, z.detach()), data.targets)
                personal[name] = step(p, own, HEAD)
                w = step(w, balanced, NAMES)
            ends[name] = w
        sizes = [float(len(labels)) for labels in OWNED.values()]
        common = {n: mean([ends[name][n] for name in OWNED], sizes) for n in NAMES}
        starts = dict.fromkeys(OWNED, common)

    for name, peer in played().peers.items():
        assert_equal(peer.trained.params, ends[name])
        served = {**ends[name], **{n: ends[name][n] + personal[name][n] for n in HEAD}}
        assert peer.trained.personal is not None
        assert_equal(peer.trained.personal, served)


def test_the_personal_classifier_is_in_nothing_that_leaves() -> None:
    hamlet = played(2)
    for peer in hamlet.peers.values():
        shared = hamlet.method.mixer.share(peer.trained, hamlet.model.head)
        assert shared is not None
        assert list(shared.params) == list(NAMES)
        assert dict(shared.extras) == {}


def test_the_personal_model_fits_better_than_the_generic_one() -> None:
    for peer in played(6).peers.values():
        data, model = peer.task.examples, peer.task.model
        assert peer.trained.personal is not None
        generic = evaluate(model, peer.trained.params, peer.trained.buffers, data)
        own = evaluate(model, peer.trained.personal, peer.trained.buffers, data)
        assert generic is not None
        assert own is not None
        assert own.loss < generic.loss


def test_the_generic_row_of_a_class_without_examples_does_not_move() -> None:
    task = hamlet("fedrod").peers["a"].task  # type: ignore[index]  # a name
    start = tiny_model().start
    trained, _ = FedRod(DescentOptions(lr=0.3)).train(NO_STATE, start, task, 0, silent)
    moved = (trained.params["head.weight"] - start.params["head.weight"]).abs().amax(dim=1)
    assert moved[0] > 1e-3
    assert moved[2] < 1e-8


def test_a_classifier_without_bias_has_a_personal_one_without() -> None:
    model = tiny_model(bias=False)
    task = hamlet("fedrod").method.task(model, examples("a"))
    trained, state = FedRod().train(NO_STATE, model.start, task, 0, silent)
    assert list(state["personal"]) == ["head.weight"]
    assert trained.personal is not None
    assert trained.personal.keys() == model.start.params.keys()


def test_the_told_loss_is_that_of_the_personal_prediction() -> None:
    model = small_model()
    task = small_task(model, size=8, batch_size=8)
    trained, _ = FedRod().train(NO_STATE, model.start, task, 0, silent)
    start = model.start
    assert math.isclose(trained.train_loss, task.full_loss(start.params, {}), rel_tol=1e-6)
