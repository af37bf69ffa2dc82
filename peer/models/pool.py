"""Models and methods that the trainers of one process share: built once, with one initial point."""

from dataclasses import dataclass, field

import torch

from peer.methods import Method, make_method
from peer.models.registry import build_model
from peer.models.split import SplitModel
from peer.settings import Settings

__all__ = ["ModelPool"]


@dataclass(slots=True, eq=False)
class ModelPool:
    """Nobody changes what was built, so any number of peers can start from the same one."""

    _raw: dict[object, SplitModel] = field(default_factory=dict)
    _fitted: dict[object, tuple[Method, SplitModel]] = field(default_factory=dict)

    def raw(
        self,
        settings: Settings,
        input_shape: tuple[int, ...],
        num_classes: int,
        *,
        seed: int,
        device: torch.device,
    ) -> SplitModel:
        """The model that a run names, on a device.

        Raises:
            ModelError: it cannot be built.
        """
        norm = settings.model_options.norm
        key = (settings.model, input_shape, num_classes, norm, seed, device)
        if key not in self._raw:
            model = build_model(settings.model, input_shape, num_classes, norm, seed)
            self._raw[key] = model.to(device)
        return self._raw[key]

    def fitted(self, settings: Settings, raw: SplitModel) -> tuple[Method, SplitModel]:
        """The run's method, and a model of this pool as it wants it.

        Raises:
            ConfigError: the method cannot be made.
        """
        options = settings.recipe.flat()
        key = (id(raw), tuple(sorted(options.items())))
        if key not in self._fitted:
            self._fitted[key] = make_method(options).fit(raw)
        return self._fitted[key]
