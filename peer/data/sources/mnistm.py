"""MNIST-M: MNIST digits on patches of photographs (Ganin et al. 2016, section 5.2.2).

The recipe is the published one, |patch - digit| for each pixel and colour. The photographs differ:
BSDS500 ships in no pip package, so patches come from seven colour photographs that lie in the
wheels of scikit-learn and scikit-image.
"""

from pathlib import Path

import numpy as np

from peer.data.domain import Domain, Pixels, missing_extra
from protocol.errors import DataError

__all__ = ["load"]

SKLEARN_PHOTOS = ("china.jpg", "flower.jpg")
SKIMAGE_PHOTOS = (
    "astronaut.png",
    "chelsea.png",
    "coffee.png",
    "motorcycle_left.png",
    "rocket.jpg",
)


def load(digits: Domain, rng: np.random.Generator) -> Domain:
    """Lay each digit on a random patch of a random photograph; x becomes (N, H, W, 3).

    Raises:
        OperatorError: scikit-learn or scikit-image is not installed.
        DataError: an installed version of theirs came without one of the photographs.
    """
    photos = [_photo(path) for path in _photo_paths()]
    count = len(digits.y)
    _, height, width, _ = digits.x.shape
    chosen = rng.integers(0, len(photos), count)
    corners = rng.random((count, 2))
    x = np.empty((count, height, width, 3), np.uint8)
    for i, (down, across) in enumerate(corners):
        photo = photos[chosen[i]]
        tall, wide, _ = photo.shape
        top, left = int(down * (tall - height + 1)), int(across * (wide - width + 1))
        patch = photo[top : top + height, left : left + width].astype(np.int16)
        x[i] = np.abs(patch - digits.x[i])
    return Domain(
        name="mnistm",
        x=x,
        y=digits.y,
        classes=digits.classes,
        source=f"MNIST-M by the recipe of Ganin et al. 2016, over: {digits.source}; photographs "
        "inside scikit-learn and scikit-image",
    )


def _photo_paths() -> list[Path]:
    try:
        import skimage  # noqa: PLC0415 - an optional extra
        import sklearn.datasets  # noqa: PLC0415 - an optional extra, and slow
    except ImportError as error:
        raise missing_extra(f"scikit-image or scikit-learn ({error.name})") from None
    sklearn_folder = Path(sklearn.datasets.__file__).parent / "images"
    skimage_folder = Path(skimage.__file__).parent / "data"
    return [sklearn_folder / name for name in SKLEARN_PHOTOS] + [
        skimage_folder / name for name in SKIMAGE_PHOTOS
    ]


def _photo(path: Path) -> Pixels:
    from PIL import Image  # noqa: PLC0415 - comes with matplotlib and torchvision

    try:
        with Image.open(path) as image:
            return np.asarray(image.convert("RGB"))
    except OSError:
        raise DataError(
            f"the photograph {path} is not there", hint="reinstall: pip install 'kinfolk[digits]'"
        ) from None
