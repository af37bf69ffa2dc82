from coordinator.limits import Allowance, Bounded, Rate


def test_a_bounded_table_forgets_what_was_longest_untouched() -> None:
    table: Bounded[str, int] = Bounded(2)
    table["a"], table["b"] = 1, 2
    table["a"] = 3  # touched
    table["c"] = 4
    assert (table.get("a"), table.get("b"), table.get("c")) == (3, None, 4)
    assert len(table) == 2
    table.discard("a")
    assert "a" not in table


def test_a_key_may_say_its_burst_and_then_its_rate() -> None:
    allowance: Allowance[str] = Allowance(Rate(burst=2, per_s=0.5), limit=8)
    assert [allowance.take("a", 0.0) for _ in range(3)] == [True, True, False]
    assert not allowance.take("a", 1.0)  # half a message has grown
    assert allowance.take("a", 2.0)
    assert not allowance.take("a", 2.0)


def test_one_keys_burst_costs_another_nothing() -> None:
    allowance: Allowance[str] = Allowance(Rate(burst=1, per_s=1), limit=8)
    assert [allowance.take("a", 0.0), allowance.take("a", 0.0)] == [True, False]
    assert allowance.take("b", 0.0)


def test_a_rest_fills_the_burst_and_no_more() -> None:
    allowance: Allowance[str] = Allowance(Rate(burst=2, per_s=1), limit=8)
    allowance.take("a", 0.0)
    assert [allowance.take("a", 1e6) for _ in range(3)] == [True, True, False]
