"""The directory of a launched run: what is in it, and that nothing but our own files is touched."""

import shutil
from collections.abc import Iterator
from pathlib import Path

from peer.ledger import EVENTS, INFLUENCE, SUMMARY
from protocol.errors import ConfigError

__all__ = ["RunDirectory", "claimed"]

_OF_A_PEER = (EVENTS, INFLUENCE, SUMMARY, "model.safetensors", "peer.log")
_STATE = "state"  # a folder of each peer


class RunDirectory:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.result = root / "result.json"
        self.log = root / "launch.log"
        self.experiment = root / "experiment.toml"  # a copy of the file, which the peers read
        self.timing = root / "timing.json"  # what a simulation has measured
        self.curves = root / "curves.png"
        self.influence_map = root / "influence.png"
        self.survival = root / "survival.json"
        self.survival_picture = root / "survival.png"
        self.shards = root / "shards"  # where what is made goes
        self.home = root / ".home"  # keys and join string of this run alone

    @property
    def peers(self) -> tuple[Path, ...]:
        """Folders in which a peer has written."""
        return tuple(sorted(path.parent for path in self.root.glob(f"*/{EVENTS}")))

    @property
    def has_results(self) -> bool:
        """Somebody has finished a round here."""
        return self.result.exists() or any(
            (peer / name).exists() for peer in self.peers for name in (INFLUENCE, SUMMARY)
        )

    def forget_keys(self) -> None:
        """Nothing of a finished run needs them."""
        shutil.rmtree(self.home, ignore_errors=True)

    def forget_state(self) -> None:
        """Drop snapshots and receive buffers."""
        for peer in self.peers:
            shutil.rmtree(peer / _STATE, ignore_errors=True)

    def _own_files(self) -> Iterator[Path]:
        yield from (
            self.result,
            self.log,
            self.experiment,
            self.timing,
            self.curves,
            self.influence_map,
            self.survival,
            self.survival_picture,
        )
        for peer in self.peers:
            yield from (peer / name for name in _OF_A_PEER)

    def begin(self) -> None:
        """Remove what an earlier run has left: our own files, and the folders that are empty then.

        Raises:
            ConfigError: a file cannot be removed, or the directory cannot be written.
        """
        peers = self.peers
        try:
            self.forget_keys()
            self.forget_state()
            for path in list(self._own_files()):
                path.unlink(missing_ok=True)
            for peer in peers:
                if not any(peer.iterdir()):
                    peer.rmdir()
            self.home.mkdir(mode=0o700)
        except OSError as error:
            raise _unwritable(self.root, error) from None


def claimed(root: Path, *, force: bool) -> RunDirectory:
    """Take a directory for a new run; nothing in it is touched before `begin`.

    Raises:
        ConfigError: it holds results and `force` was not given, or it cannot be made.
    """
    directory = RunDirectory(root)
    if directory.has_results and not force:
        raise ConfigError(
            f"{root} holds the results of a run",
            hint="give another --out, or --force to replace them (and nothing else)",
        )
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(root, error) from None
    return directory


def _unwritable(root: Path, error: OSError) -> ConfigError:
    return ConfigError(f"{root} cannot be written: {error.strerror or error}")
