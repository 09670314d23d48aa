"""Figures that no window has to show, and files written whole or not at all."""

import contextlib
import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


MOST_PIXELS = 2.0e6  # many panels are looked at one by one, or from afar


def save_figure(figure: "Figure", file: str | os.PathLike[str]) -> None:
    """Write a picture in the format that the name of `file` ends in, whole or not at all."""
    file = Path(file)
    staging = file.with_name(f".{uuid.uuid4().hex}{file.suffix}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        width, height = figure.get_size_inches()
        figure.savefig(staging, dpi=min(150.0, (MOST_PIXELS / (width * height)) ** 0.5))
        if file.suffix == ".png":
            _reduce_colours(staging)
        os.replace(staging, file)
    except OSError as error:
        raise InputError(f"{file} cannot be written ({error.strerror or error}); choose another") from error
    finally:
        with contextlib.suppress(OSError):
            staging.unlink()


def _reduce_colours(file: Path) -> None:
    """A palette of 256 colours in the place of all: to the eye the same, and a third of the bytes."""
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
