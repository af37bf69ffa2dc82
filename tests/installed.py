"""Packages as pip leaves them: modules beside a dist-info folder, on a path of their own."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from shutil import copytree

__all__ = ["EXAMPLE", "install", "install_project"]

EXAMPLE = Path(__file__).parents[1] / "deploy" / "examples" / "own-method"


def install(
    site: Path, name: str, groups: Mapping[str, Mapping[str, str]], modules: Mapping[str, str]
) -> None:
    """Install version 1.0 of a package whose modules are given as text."""
    info = site / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = (
        line
        for group, points in groups.items()
        for line in (f"[{group}]", *(f"{key} = {value}" for key, value in points.items()))
    )
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    for module, text in modules.items():
        (site / f"{module}.py").write_text(text)


def install_project(site: Path, project: Path) -> None:
    """Install a folder with a pyproject.toml and packages beside it, by what that file says."""
    said = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    install(site, said["name"], said["entry-points"], {})
    for package in project.glob("*/__init__.py"):
        copytree(package.parent, site / package.parent.name)
