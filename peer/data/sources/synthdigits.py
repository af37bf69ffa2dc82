"""SynthDigits: digits rendered from fonts, after Ganin et al. 2016 (section 5.2.2, Syn Numbers).

Varied per image, all from one generator: font, size, position, rotation, colours of stroke and
ground with a minimum of contrast, a slope of light across the ground, blur, and noise. The fonts
are those in matplotlib's wheel that draw plain digits; its symbol and old-style fonts are left out.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from peer.data.domain import DIGITS, LUMA, Domain, Pixels, missing_extra
from protocol.errors import DataError

if TYPE_CHECKING:
    from PIL.ImageFont import FreeTypeFont

__all__ = ["load"]

FONTS = (
    "DejaVuSans",
    "DejaVuSans-Bold",
    "DejaVuSans-BoldOblique",
    "DejaVuSans-Oblique",
    "DejaVuSansMono",
    "DejaVuSansMono-Bold",
    "DejaVuSansMono-BoldOblique",
    "DejaVuSansMono-Oblique",
    "DejaVuSerif",
    "DejaVuSerif-Bold",
    "DejaVuSerif-BoldItalic",
    "DejaVuSerif-Italic",
    "STIXGeneral",
    "STIXGeneralBol",
    "STIXGeneralBolIta",
    "STIXGeneralItalic",
    "cmb10",
    "cmr10",
    "cmss10",
    "cmti10",
    "cmtt10",
)
SIDE = 28  # pixels
BATCH = 1000  # images painted at once: 19 MB of floats
DRAWN = 2 * SIDE  # pixels of the canvas that is then halved
HEIGHTS = range(34, 53, 3)  # of a digit on the canvas, pixels
MAX_TURN_DEG = 25.0
MAX_SHIFT = 7.0  # from the centre, pixels of the canvas
MIN_CONTRAST = 70.0  # difference of grey between stroke and ground, of 255
MAX_BLUR = 2.2  # standard deviation, pixels of the canvas
MAX_SLOPE = 40.0  # difference of light from the centre of the ground to its edge, of 255
MAX_NOISE = 10.0  # standard deviation, of 255


@dataclass(frozen=True, slots=True, eq=False)
class Looks:
    """How each of N images looks."""

    font: npt.NDArray[np.int64]
    height: npt.NDArray[np.int64]
    turn_deg: npt.NDArray[np.float64]
    shift: npt.NDArray[np.float64]  # (N, 2)
    blur: npt.NDArray[np.float64]
    ground: npt.NDArray[np.float64]  # (N, 3)
    stroke: npt.NDArray[np.float64]  # (N, 3)
    slope: npt.NDArray[np.float64]  # (N, 2)
    noise: npt.NDArray[np.float64]


def load(per_class: int, rng: np.random.Generator) -> Domain:
    """Render `per_class` images of each digit, (N, 28, 28, 3).

    Raises:
        OperatorError: matplotlib is not installed.
        DataError: its fonts are not where they should be.
    """
    y = np.tile(np.arange(len(DIGITS)), per_class)
    looks = _drawn_looks(len(y), rng)
    masks = np.empty((len(y), SIDE, SIDE), np.float32)
    for i, label in enumerate(y):
        masks[i] = _mask(DIGITS[label], looks, i)
    return Domain(
        name="synthdigits",
        x=_painted(masks, looks, rng),
        y=y,
        classes=DIGITS,
        source="SynthDigits after Ganin et al. 2016, rendered from fonts inside matplotlib",
    )


def _drawn_looks(count: int, rng: np.random.Generator) -> Looks:
    ground, stroke = _colours(count, rng)
    return Looks(
        font=rng.integers(0, len(FONTS), count),
        height=rng.choice(HEIGHTS, count),
        turn_deg=rng.uniform(-MAX_TURN_DEG, MAX_TURN_DEG, count),
        shift=rng.uniform(-MAX_SHIFT, MAX_SHIFT, (count, 2)),
        blur=rng.uniform(0.0, MAX_BLUR, count),
        ground=ground,
        stroke=stroke,
        slope=rng.uniform(-MAX_SLOPE, MAX_SLOPE, (count, 2)),
        noise=rng.uniform(0.0, MAX_NOISE, count),
    )


def _colours(
    count: int, rng: np.random.Generator
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Draw two colours for each image, (N, 3) each, moved apart along grey where too alike.

    The lighter one is moved towards white and the darker one towards black, each by the same
    fraction of the way, the smallest that gives the contrast: no drawing anew, so always an end.
    """
    pair = rng.uniform(0.0, 255.0, (2, count, 3))
    grey = pair @ np.array(LUMA)  # (2, N)
    lighter = grey.argmax(axis=0)  # (N,)
    gap = np.abs(grey[0] - grey[1])
    fraction = np.clip((MIN_CONTRAST - gap) / (255.0 - gap), 0.0, 1.0)
    goal = np.where(np.arange(2)[:, None] == lighter, 255.0, 0.0)  # (2, N)
    ground, stroke = pair + fraction[:, None] * (goal[:, :, None] - pair)
    return ground, stroke


def _mask(digit: str, looks: Looks, i: int) -> npt.NDArray[np.float32]:
    """Draw one digit's coverage, (28, 28) in [0, 1]."""
    from PIL import Image, ImageDraw, ImageFilter  # noqa: PLC0415 - comes with matplotlib

    canvas = Image.new("L", (DRAWN, DRAWN))
    font = _font(FONTS[looks.font[i]], int(looks.height[i]))
    left, top, right, bottom = font.getbbox(digit)
    across, down = looks.shift[i]
    corner = ((DRAWN - left - right) / 2 + across, (DRAWN - top - bottom) / 2 + down)
    ImageDraw.Draw(canvas).text(corner, digit, fill=255, font=font)
    turned = canvas.rotate(float(looks.turn_deg[i]), Image.Resampling.BILINEAR)
    blurred = turned.filter(ImageFilter.GaussianBlur(float(looks.blur[i])))
    halved = blurred.resize((SIDE, SIDE), Image.Resampling.BOX)
    return np.asarray(halved, np.float32) / 255.0


def _painted(masks: npt.NDArray[np.float32], looks: Looks, rng: np.random.Generator) -> Pixels:
    """Colour (N, 28, 28) coverages: (N, 28, 28, 3)."""
    x = np.empty((*masks.shape, 3), np.uint8)
    ramp = np.linspace(-1.0, 1.0, SIDE)
    for start in range(0, len(masks), BATCH):
        rows = slice(start, start + BATCH)
        down = looks.slope[rows, 0, None, None] * ramp[:, None]
        across = looks.slope[rows, 1, None, None] * ramp
        ground = looks.ground[rows, None, None, :] + (down + across)[..., None]
        cover = masks[rows, ..., None]
        painted = ground * (1 - cover) + looks.stroke[rows, None, None, :] * cover
        painted += rng.standard_normal(painted.shape) * looks.noise[rows, None, None, None]
        x[rows] = np.clip(np.rint(painted), 0, 255)
    return x


@cache
def _font(name: str, height: int) -> "FreeTypeFont":
    """Load a font at the size at which its 0 is `height` pixels high, to within one."""
    try:
        import matplotlib as mpl  # noqa: PLC0415 - an optional extra
        from PIL import ImageFont  # noqa: PLC0415 - comes with matplotlib
    except ImportError:
        raise missing_extra("matplotlib") from None
    path = Path(mpl.get_data_path()) / "fonts" / "ttf" / f"{name}.ttf"
    try:
        _, top, _, bottom = ImageFont.truetype(path, 100).getbbox("0")
        return ImageFont.truetype(path, round(100 * height / (bottom - top)))
    except OSError:
        raise DataError(
            f"the font {path} is not there", hint="reinstall: pip install 'kinfolk[digits]'"
        ) from None
