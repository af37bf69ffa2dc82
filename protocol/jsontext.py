"""JSON of a file that a crash, a disk or a person may have spoilt: one error, whatever is wrong."""

import json

__all__ = ["parse_json"]


def parse_json(text: str | bytes) -> object:
    """Read a JSON value.

    Raises:
        ValueError: it is not JSON, nested too deeply, or holds an integer of more than 64 bits,
            which the arithmetic of whoever reads it would not take.
    """
    try:
        value: object = json.loads(text, parse_int=_integer)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value


def _integer(digits: str) -> int:
    number = int(digits)
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"{digits[:20]} does not fit 64 bits")
    return number
