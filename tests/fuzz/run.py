"""Search one target for an input that it does not survive, guided by coverage (atheris, libFuzzer).

    pip install -e '.[fuzz]'
    python -m tests.fuzz.run TARGET FOLDER SECONDS [libFuzzer's options]

FOLDER gets what is found on the way: `python -m tests.fuzz.corpus TARGET FOLDER` keeps the best of
it. An input that a target does not survive ends the search and is written to FOLDER.found; one that
takes 300 s (other programs may have the machine) or 1 GB of memory ends it too, and is written
beside by libFuzzer.
"""

import logging
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["protocol", "peer", "coordinator"]):
    from tests.fuzz.corpus import unpack
    from tests.fuzz.targets import TARGETS


def main(program: str, target: str, folder: str, seconds: str, *more: str) -> None:
    logging.disable()  # of what was dropped: millions of lines
    place = Path(folder)
    unpack(target, place)

    def survive(data: bytes) -> None:
        try:
            TARGETS[target](data)
        except BaseException:
            place.with_suffix(".found").write_bytes(data)
            raise

    limits = ("-timeout=300", "-rss_limit_mb=1024", "-max_len=4096", "-print_final_stats=1")
    found = f"-artifact_prefix={place}."
    options = (f"-max_total_time={seconds}", *limits, found, *more)
    atheris.Setup([program, folder, *options], survive)
    atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv)
