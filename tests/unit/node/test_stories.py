"""Any story: nodes die, stop and are born again, the coordinator goes and comes, words get lost."""

from random import Random

import pytest

from tests.unit.node.dweller import Dweller
from tests.unit.node.valley import Valley, ends

NAMES = "abcde"
CHAPTERS = 6
LONG_S = 6000.0  # virtual: nothing here may take so long
SEEDS = [*range(6), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(6, 120))]


class Story:
    """What a seed does to a valley; at least one node is left in peace."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = Random(seed)
        self.valley = Valley(
            founders=len(NAMES),
            loss=chance.choice([0.0, 0.02, 0.1, 0.3]),
            seed=seed,
            run__rounds=8,
            run__topology=chance.choice(["full", "ring"]),
            run__participation=chance.choice([1.0, 0.5]),
            pace__quorum=chance.choice([0.5, 0.9, 1.0]),
            pace__drain_s=20.0,
        )
        self.living = [self.valley.add(name, train_s=self._pace_s()) for name in NAMES]
        self._gone: list[str] = []

    def tell(self) -> None:
        self.valley.play(LONG_S, until=self._has_begun)  # the lobby waits for all of them
        deeds = (self._kill, self._stop, self._bear, self._coordinator_dies, self._coordinator_back)
        for _ in range(CHAPTERS):
            self.valley.play(self.valley.now_s + self.chance.choice([0.05, 0.5, 3.0, 10.0, 30.0]))
            self.chance.choice(deeds)()
        self._coordinator_back()

    def _has_begun(self) -> bool:
        return any(dweller.records for dweller in self.living)

    def _pace_s(self) -> float:
        return self.chance.choice([0.1, 1.0, 7.0])

    def _kill(self) -> None:
        if dweller := self._victim():
            self.valley.kill(dweller)

    def _stop(self) -> None:
        if dweller := self._victim():
            self.valley.stop(dweller)

    def _victim(self) -> Dweller | None:
        candidates = [dweller for dweller in self.living[1:] if dweller.plays]
        if not candidates:
            return None
        dweller = self.chance.choice(candidates)
        self.living.remove(dweller)
        self._gone.append(dweller.name)
        return dweller

    def _bear(self) -> None:
        if self._gone and self.valley.directory is not None:
            self.living.append(self.valley.add(self._gone.pop(), train_s=self._pace_s()))

    def _coordinator_dies(self) -> None:
        self.valley.kill_coordinator()

    def _coordinator_back(self) -> None:
        if self.valley.directory is None:
            self.valley.start_coordinator()


@pytest.mark.parametrize("seed", SEEDS)
def test_who_lives_finishes(seed: int) -> None:
    story = Story(seed)
    story.tell()
    assert story.valley.play(LONG_S)
    assert ends(story.living) == {d.name: (0, "finished") for d in story.living}
    for dweller in story.living:
        numbers = list(dweller.records)
        assert numbers == sorted(numbers)
        skipped = [number for record in dweller.records.values() for number in record.skipped]
        assert not set(skipped) & set(numbers)
