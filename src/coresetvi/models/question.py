"""What rows are asked in one pass, and what they answer; see `local_view.py`."""

from typing import NamedTuple

from jaxtyping import Array, Float

# Parts of the way back to the last place at which every pass asks as well.
BACK = (0.9, 0.75, 0.5, 0.25)


class Question(NamedTuple):
    """Where to look, in which units, and at which other thetas."""

    anchor: Float[Array, " d"]
    factor: Float[Array, "d d"]
    thetas: Float[Array, "s d"]


class LocalView(NamedTuple):
    """The log-likelihood at the anchor, its slope and curvature in the factor's units, and its rises.

    `weight` is what all rows weigh.
    """

    weight: Float[Array, ""]
    value: Float[Array, ""]
    slope: Float[Array, " d"]
    curvature: Float[Array, "d d"]
    rises: Float[Array, " s"]
