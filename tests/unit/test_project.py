"""The project keeps its own rules: commands that are named exist, files stay small, bans hold."""

import ast
import re
import shlex
import tomllib
from collections.abc import Iterator
from importlib import import_module
from itertools import takewhile
from pathlib import Path

import click
import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("protocol", "peer", "coordinator")
MAX_LINES = 400  # of a file; about 300 is the habit

# Files that may be longer: up to how many lines, and why.
LONGER = {
    "coordinator/directory.py": (490, "one state machine: a method for each message and order"),
    "protocol/wire/messages.py": (470, "the one list of what is said on the wire"),
    "peer/simulation/peer_host.py": (420, "carries out every kind of act, as runtime.py does"),
    "peer/simulation/world.py": (460, "one agenda: ways, deaths and faults act on the same hosts"),
    "peer/machine.py": (
        750,
        "one state machine: its phases share their state, and are read as one",
    ),
    "peer/node.py": (540, "composes three machines: one short method for each of their events"),
    "protocol/wire/membership.py": (440, "one state machine: all that a node says to be a member"),
    "peer/runtime.py": (470, "carries out every kind of act and event, one line for each"),
}


def sources(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


# -- commands -------------------------------------------------------------------------------

PAGES = ("README.md", "CONTRIBUTING.md")
FENCED = re.compile(r"^```[a-z]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")
COMMAND = re.compile(r"(?:\$ )?((?:make|peer|coordinator)(?: .*)?)")


def commands_in_page(text: str) -> list[str]:
    """What a page shows as code and begins with a program of ours."""
    lines = "".join(FENCED.findall(text)).replace("\\\n", " ").splitlines()
    spans = SPAN.findall(FENCED.sub("", text))
    found = (COMMAND.fullmatch(code.strip()) for code in (*lines, *spans))
    return [match[1] for match in found if match]


def commands_in_makefile(text: str) -> list[str]:
    return re.findall(r"\$\(BIN\)/((?:peer|coordinator) .*)", text)


def targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def fault_of(line: str) -> str:
    """What of a command line does not exist; empty when all of it does."""
    program, *words = shlex.split(line, comments=True)
    if program == "make":
        unknown = {word for word in words if "=" not in word} - targets()
        return f"no target {', '.join(sorted(unknown))}" if unknown else ""
    command = root_command(program)
    known = option_names(command)
    for word in takewhile(lambda word: not word.startswith("-"), words):
        if not isinstance(command, click.Group):
            break
        inner = command.get_command(click.Context(command), word)
        if inner is None:
            return f"no command {word}"
        command, known = inner, known | option_names(inner)
    unknown = {word.partition("=")[0] for word in words if word.startswith("-")} - known
    return f"no option {', '.join(sorted(unknown))}" if unknown else ""


def root_command(program: str) -> click.Command:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    module, _, name = project["scripts"][program].partition(":")
    command = getattr(import_module(module), name)
    assert isinstance(command, click.Command)
    return command


def option_names(command: click.Command) -> set[str]:
    names = (name for option in command.params for name in (*option.opts, *option.secondary_opts))
    return {*names, "--help"}


@pytest.mark.parametrize("page", PAGES)
def test_every_command_that_a_page_names_exists(page: str) -> None:
    named = commands_in_page((ROOT / page).read_text())
    assert {line: fault for line in named if (fault := fault_of(line))} == {}


def test_every_command_in_the_makefile_exists() -> None:
    named = commands_in_makefile((ROOT / "Makefile").read_text())
    assert {line: fault for line in named if (fault := fault_of(line))} == {}


def test_commands_are_found_in_fences_and_in_prose() -> None:
    page = "Type `make demo`.\n```sh\n$ peer start \\\n  --gpu 0  # here\nls\n```\n`peer/cli`"
    assert commands_in_page(page) == ["peer start    --gpu 0  # here", "make demo"]


def test_a_target_that_is_missing_is_found() -> None:
    assert fault_of("make check tea SEED=1") == "no target tea"


# -- sizes ----------------------------------------------------------------------------------


def test_files_stay_small() -> None:
    sizes = {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines())
        for path in sources(*PACKAGES)
    }
    limits = dict.fromkeys(sizes, MAX_LINES)
    limits |= {name: limit for name, (limit, _why) in LONGER.items()}
    assert {name: size for name, size in sizes.items() if size > limits[name]} == {}
    assert limits.keys() == sizes.keys(), "an excuse for a file that is gone"


# -- bans -----------------------------------------------------------------------------------

PICKLERS = {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
BANNED = {"eval", "exec", "torch.load", "torch.save", "torch.jit.load"}
SLEEPS = {"time.sleep", "sleep", "asyncio.sleep"}
BANNED_MODULES_IN_TESTS = PICKLERS | {"unittest.mock", "mock"}


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)


def called(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield dotted(node.func)
            for word in node.keywords:
                if word.arg == "allow_pickle" and ast.unparse(word.value) != "False":
                    yield "allow_pickle"


def dotted(node: ast.expr) -> str:
    match node:
        case ast.Name():
            return node.id
        case ast.Attribute():
            return f"{dotted(node.value)}.{node.attr}"
        case _:
            return ""


def breaches(path: Path, *, modules: set[str], calls: set[str]) -> set[str]:
    text = path.read_text()
    words = {name.rpartition(".")[2] for name in (*modules, *calls)}
    if not re.search(rf"\b({'|'.join(sorted(words))}|allow_pickle)\b", text):
        return set()  # as for most files: to parse all of them takes seconds
    tree = ast.parse(text)
    roots = {name for name in imported(tree) if name in modules or name.split(".")[0] in modules}
    return roots | (set(called(tree)) & (calls | {"allow_pickle"}))


def test_nothing_is_pickled_or_evaluated() -> None:
    found = {
        str(path.relative_to(ROOT)): names
        for path in sources(*PACKAGES, "benchmarks", "deploy")
        if (names := breaches(path, modules=PICKLERS, calls=BANNED))
    }
    assert found == {}


def test_no_test_sleeps_or_mocks() -> None:
    """What looks again at a real process until a bound lives in a helper, not in a test."""
    found = {
        str(path.relative_to(ROOT)): names
        for path in sources("tests")
        if (names := breaches(path, modules=BANNED_MODULES_IN_TESTS, calls=banned_calls(path)))
    }
    assert found == {}


def banned_calls(path: Path) -> set[str]:
    return BANNED | SLEEPS if path.name.startswith("test_") else BANNED


def test_a_ban_bites(tmp_path: Path) -> None:
    path = tmp_path / "bad.py"
    path.write_text(
        "import pickle\nfrom os import path\ntorch.load(f)\nnp.load(f, allow_pickle=True)\n"
    )
    assert breaches(path, modules=PICKLERS, calls=BANNED) == {
        "pickle",
        "torch.load",
        "allow_pickle",
    }
