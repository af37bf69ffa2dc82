"""docs/methods.md knows every method, preset and option, with the defaults of the code."""

import re
from pathlib import Path

import pytest

from peer.options.fields import Options, rules
from peer.options.models import MODELS
from peer.options.recipe import COMMON, PRESETS, SLOTS

TEXT = (Path(__file__).parents[3] / "docs" / "methods.md").read_text()


def sections() -> list[tuple[str, type[Options]]]:
    methods = [
        (slot, entry.options) for slot, entries in SLOTS.items() for entry in entries.values()
    ]
    return methods + list(COMMON.items())


@pytest.mark.parametrize("name", [*PRESETS, *SLOTS["mixer"], *SLOTS["solver"], *MODELS])
def test_a_name_that_can_be_typed_is_documented(name: str) -> None:
    assert re.search(rf"`[^`]*(?<![\w+-]){re.escape(name)}(?![\w+-])[^`]*`", TEXT)


@pytest.mark.parametrize(("section", "options"), sections())
def test_an_option_is_documented_with_its_default(section: str, options: type[Options]) -> None:
    for name, rule in rules(options).items():
        row = re.search(
            rf"^\| `{section}\.{name}`[^|]*\| ([^|]*) \| ([^|]*) \|", TEXT, re.MULTILINE
        )
        assert row, f"{section}.{name}"
        default = str(rule.default)
        if isinstance(rule.default, bool):
            default = default.lower()
        assert row[1].strip("`") == default
        is_words = isinstance(rule.default, str | bool)
        expected = rule.allowed.replace(" | ", " ") if is_words else rule.allowed
        assert row[2].strip("`") == expected
