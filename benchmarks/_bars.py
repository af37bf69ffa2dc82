"""What a benchmark must reach: one line of JSON for each bar."""

import json

__all__ = ["bar"]


def bar(name: str, found: float, limit: float, *, at_most: bool = False) -> bool:
    """Print a bar, and say whether it is met."""
    met = found <= limit if at_most else found >= limit
    line = {"bar": name, "found": round(found, 3), "limit": limit, "met": met}
    print(json.dumps(line), flush=True)
    return met
