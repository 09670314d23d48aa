"""Figures that no window has to show, and files written whole or not at all."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError
from ..storage import whole_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure


MOST_PIXELS = 2.0e6  # many panels are looked at one by one, or from afar


def save_figure(figure: "Figure", file: str | os.PathLike[str]) -> None:
    """Write a picture in the format that the name of `file` ends in, whole or not at all.

    >>> save_figure(new_figure(2.0, 1.0), "empty.png")
    >>> Path("empty.png").exists()
    True
    """
    file = Path(file)
    width, height = figure.get_size_inches()
    with whole_file(file) as staging:
        figure.savefig(staging, dpi=min(150.0, (MOST_PIXELS / (width * height)) ** 0.5))
        if file.suffix == ".png":
            _reduce_colours(staging)


def _reduce_colours(file: Path) -> None:
    """Reduce a picture to a palette of 256 colours: it looks the same at a third of the bytes."""
    from PIL import Image  # comes with matplotlib

    with Image.open(file) as picture:
        small = picture.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    small.save(file, optimize=True)


def new_figure(width: float, height: float) -> "Figure":
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError('pictures need matplotlib; pip install "coresetvi[cli]"') from error
    # Not through pyplot, which keeps every figure and wants a display: this one goes when it is let go.
    return Figure(figsize=(width, height), layout="constrained")
