"""One step's record: what every construction tells about a step."""

from typing import NamedTuple

from jaxtyping import Array, Float


class Info(NamedTuple):
    """One step's record. `kl` estimates KL(coreset posterior || data posterior) in nats where it is small.

    `more` holds what only one construction has to tell, by name.
    """

    loss: Float[Array, ""]
    kl: Float[Array, ""]
    ess: Float[Array, ""]
    inner_gradient_norm: Float[Array, ""]
    inner_steps: Array
    accepted: Array
    more: dict[str, Array] = {}  # noqa: RUF012 - a record is never changed
