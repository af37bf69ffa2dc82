"""How commands end: one clear line, and an exit code that means something."""

import errno
import logging
import re
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from protocol.console import Commands
from protocol.errors import ConfigError, LayoutError


def run(body: Callable[[], None], *args: str) -> Result:
    group = Commands("tool")
    group.add_command(click.Command("do", callback=body))
    return CliRunner().invoke(group, ["do", *args])


def raises(error: BaseException) -> Callable[[], None]:
    def body() -> None:
        raise error

    return body


ENDINGS = [
    (
        ConfigError("lr is 2, at most 1", hint="lower it"),
        2,
        "Error: lr is 2, at most 1\n  lower it\n",
    ),
    (ConfigError("lr is 2"), 2, "Error: lr is 2\n"),
    (LayoutError("names differ"), 1, "Error: names differ\n"),
    (
        OSError(errno.ENOSPC, "No space left on device", "/x"),
        2,
        "Error: No space left on device: /x\n",
    ),
    (OSError(errno.ENOSPC, "No space left on device"), 2, "Error: No space left on device\n"),
    (
        OSError(errno.ENAMETOOLONG, "File name too long", "x" * 5000),
        2,
        f"Error: File name too long: {'x' * 200}\n",
    ),
    (OSError(errno.ELOOP, "Too many levels", "/x"), 2, "Error: Too many levels: /x\n"),
    (KeyboardInterrupt(), 130, "Interrupted.\n"),
    (click.ClickException("odd"), 1, "Error: odd\n"),
]


@pytest.mark.parametrize(("error", "code", "text"), ENDINGS, ids=lambda value: repr(value)[:40])
def test_each_fault_has_its_line_and_code(error: BaseException, code: int, text: str) -> None:
    result = run(raises(error))
    assert (result.exit_code, result.stderr.lstrip("\n"), result.stdout) == (code, text, "")


def test_a_bug_leaves_its_traceback_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    result = run(raises(ZeroDivisionError("division by zero")))
    assert result.exit_code == 1
    assert "Error: unexpected ZeroDivisionError: division by zero" in result.stderr
    assert "Traceback" not in result.stderr
    kept = re.search(r"its traceback is in (\S+)", result.stderr)
    assert kept is not None
    assert "Traceback" in Path(kept[1]).read_text()


def test_a_traceback_that_cannot_be_kept_is_still_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/nowhere")
    assert "no file: none could be written" in run(raises(ZeroDivisionError())).stderr


def test_a_word_that_click_does_not_know_is_the_operators_fault() -> None:
    result = run(lambda: None, "--no-such-option")
    assert result.exit_code == 2
    assert "No such option" in result.stderr


def test_a_command_that_works_ends_with_nothing_said() -> None:
    result = run(lambda: None)
    assert (result.exit_code, result.output) == (0, "")


def test_an_exit_with_a_code_keeps_it() -> None:
    assert run(lambda: click.get_current_context().exit(7)).exit_code == 7


@pytest.mark.parametrize(
    ("flags", "shown"),
    [((), ["warning"]), (("-v",), ["info", "warning"]), (("-vv",), ["debug", "info", "warning"])],
)
def test_each_v_shows_more_of_the_log(flags: tuple[str, ...], shown: list[str]) -> None:
    log = logging.getLogger("tool")

    def body() -> None:
        log.debug("debug")
        log.info("info")
        log.warning("warning")

    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    try:
        lines = run(body, *flags).stderr.splitlines()
    finally:
        root.setLevel(level)
        root.handlers[:] = handlers
    assert [line.split()[-1] for line in lines] == shown
