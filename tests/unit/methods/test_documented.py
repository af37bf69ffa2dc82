"""docs/methods.md knows every method, preset and option, with the defaults of the code."""

import re
from pathlib import Path

import pytest

from peer.options.fields import Options, rules
from peer.options.models import MODELS
from peer.options.recipe import COMMON, PRESETS, SLOTS

TEXT = (Path(__file__).parents[3] / "docs" / "methods.md").read_text()


def sections() -> list[tuple[str, str, type[Options]]]:
    """Section of the key, method, options."""
    methods = [
        (slot, name, entry.options)
        for slot, entries in SLOTS.items()
        for name, entry in entries.items()
    ]
    return methods + [(section, "", options) for section, options in COMMON.items()]


def rows(key: str, method: str) -> list[tuple[str, str]]:
    """Default and allowed values of each row that is about the key, of all methods or this one."""
    pattern = rf"^\| `{key}`(?: \(([^)]*)\))?[^|]*\| ([^|]*) \| ([^|]*) \|"
    return [
        (default.strip("`"), allowed.strip("`"))
        for owners, default, allowed in re.findall(pattern, TEXT, re.MULTILINE)
        if not owners or method in owners.split(", ")
    ]


@pytest.mark.parametrize(
    "name", sorted({*PRESETS, *(n for s in SLOTS.values() for n in s), *MODELS})
)
def test_a_name_that_can_be_typed_is_documented(name: str) -> None:
    assert re.search(rf"`[^`]*(?<![\w+-]){re.escape(name)}(?![\w+-])[^`]*`", TEXT)


@pytest.mark.parametrize(("section", "method", "options"), sections())
def test_an_option_is_documented_with_its_default(
    section: str, method: str, options: type[Options]
) -> None:
    for name, rule in rules(options).items():
        default = str(rule.default)
        if isinstance(rule.default, bool):
            default = default.lower()
        is_words = isinstance(rule.default, str | bool)
        allowed = rule.allowed.replace(" | ", " ") if is_words else rule.allowed
        assert rows(f"{section}.{name}", method) == [(default, allowed)]
