"""The experiment that tests play for real, as the text of its file: small digits, a small model."""

import json

__all__ = ["fault", "small"]


def small(
    method: str,
    *,
    rounds: int,
    peers: int,
    partition: str = "domain",
    samples_per_class: int = 4,
    pace: str = "",
    more: str = "",
) -> str:
    """Write an experiment of digits of 8x8 pixels and an `mlp`.

    Args:
        method: its preset.
        rounds: of training.
        peers: named shard0, shard1 and so on.
        partition: how the digits are dealt.
        samples_per_class: of each peer's training split.
        pace: lines of that table.
        more: further tables.
    """
    return f"""
[run]
rounds = {rounds}
[method]
name = "{method}"
[model]
name = "mlp"
[pace]
{pace}
[data]
make = ["optdigits"]
peers = {peers}
partition = "{partition}"
samples_per_class = {samples_per_class}
size = 8
{more}
"""


def fault(kind: str, **fields: object) -> str:
    """Write one table of what befalls the run, `fields` by their names in docs/faults.md."""
    lines = [f"{key} = {json.dumps(value)}" for key, value in {"kind": kind, **fields}.items()]
    return "\n".join(["[[fault]]", *lines, ""])
