"""A run on this host is opened with what is there: its journal, its keys, its join string."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from coordinator.cli import main
from coordinator.config import Config
from coordinator.journal import Journal
from coordinator.opening import announced, opened
from coordinator.orders import give
from protocol.errors import ConfigError, KeyFileError
from protocol.home import Home
from protocol.wire.messages import Lift, NewToken

CONFIG = Config(run_name="demo")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A person's folder with a run that was led, and is stopped."""
    home = Home(tmp_path / "home")
    with opened(home, CONFIG, now_s=0.0) as run:
        run.book.bind, run.book.advertise = "127.0.0.1:7733", "127.0.0.1"
        with announced(home, run):
            pass
    return home


def contents(home: Home) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (home.runs / "demo").iterdir()}


def test_a_run_that_is_opened_again_has_the_same_keys(home: Home) -> None:
    before = contents(home)
    with opened(home, CONFIG, now_s=0.0) as run:
        assert run.note == "resumed with 0 members"
        assert run.book.incarnation == 2
    assert contents(home)["identity.key"] == before["identity.key"]


def test_a_run_whose_keys_are_gone_gets_no_new_ones(home: Home) -> None:
    (home.runs / "demo" / "identity.key").unlink()
    before = contents(home)
    told = r"the keys of the run demo are gone from .*identity\.key: .* - restore identity\.key, or"
    with pytest.raises(KeyFileError, match=told), opened(home, CONFIG, now_s=0.0):
        pass
    assert contents(home).keys() == before.keys()
    assert contents(home)["journal.json"] == before["journal.json"]


def test_a_stopped_run_takes_orders_and_keeps_its_keys(home: Home) -> None:
    before = contents(home)
    assert give(home, "demo", NewToken(b"n" * 16, 0.0, 1)).endswith(": for ever, used 0 of 1")
    assert contents(home)["identity.key"] == before["identity.key"]
    loaded = Journal(home.runs / "demo").load()
    assert loaded is not None
    assert len(loaded.book.tokens) == 2


@pytest.mark.parametrize(
    ("order", "typed"),
    [
        (("refused", "lift"), "\x1b[31m"),
        (("refused", "lift"), "a" * 65),
        (("refused", "lift"), ""),
        (("tokens", "withdraw"), "\x1b"),
        (("tokens", "withdraw"), "a" * 17),
        (("revoke",), "\x1b"),
    ],
)
def test_what_no_message_could_carry_is_told_before_anybody_is_asked(
    order: tuple[str, ...], typed: str, home: Home
) -> None:
    done = CliRunner().invoke(main, [*order, "--run", "demo", "--", typed])
    assert done.exit_code == 2
    assert "Error: " in done.output
    assert "\x1b" not in done.output
    assert isinstance(done.exception, SystemExit)


@pytest.mark.parametrize(
    ("until", "told"),
    [
        ("1970-01-01T00:00+00:00", "must lie between 1970 and 5138"),  # 0 is for ever
        ("1969-12-24", "must lie between 1970 and 5138"),
        ("9999-12-31T23:59", "must lie between 1970 and 5138"),
        ("0001-01-01", "is not a date"),
        ("nan", "is not a date"),
        ("", "is not a date"),
        ("2001-01-01", "--until lies in the past"),
    ],
)
def test_a_token_until_a_day_that_cannot_be_meant_is_refused(
    until: str, told: str, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KINFOLK_HOME", str(home.root))
    before = contents(home)
    done = CliRunner().invoke(main, ["tokens", "new", "--run", "demo", "--until", until])
    assert (done.exit_code, isinstance(done.exception, SystemExit)) == (2, True)
    assert told in done.output
    assert contents(home)["journal.json"] == before["journal.json"]


def test_an_order_that_changes_nothing_writes_nothing(home: Home) -> None:
    before = contents(home)
    with pytest.raises(ConfigError, match="no key of nobody is refused in the run demo"):
        give(home, "demo", Lift("nobody"))
    assert contents(home)["journal.json"] == before["journal.json"]
