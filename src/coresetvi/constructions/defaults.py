"""Every choice that depends on the size of a model, on the number of rows, or on what a row costs."""

from ..data.dataset import Dataset
from ..inner import Unrolled
from ..models.base import Model
from ..objectives import Objective
from ..outer.base import Optimizer

# Size of a coreset that was not asked for: this many points a parameter, within these limits.
POINTS_PER_PARAMETER, FEWEST_POINTS, MOST_POINTS = 2, 20, 500


def default_size(model: Model, available: int) -> int:
    """Enough points to pin down every parameter, while that is few, and never more than there are rows.

    >>> from coresetvi.models import LogisticRegression
    >>> default_size(LogisticRegression(40), 1000), default_size(LogisticRegression(40), 50)
    (80, 50)
    """
    return min(max(POINTS_PER_PARAMETER * model.dim, FEWEST_POINTS), MOST_POINTS, available)


# Up to this many parameters a full covariance and importance sampling are both affordable and reliable.
SMALL_MODEL = 128


# Importance sampling from r works if the first step's draws leave more than so many effective ones.
MIN_EFFECTIVE_DRAWS = 4.0


# Log-likelihoods (rows x draws x steps) that a fit may evaluate before it turns to minibatches: about 20 s.
WHOLE_DATA_WORK = 2_500_000_000


MINIBATCH_ROWS = 8_192


# How r is found on the coreset: as a rule, and where a row is a lot of work (see `effort.py`). Then steps are
# few and long, one draw each, from a fresh start: the points are to suit any network.
LIGHT_INNER = Unrolled(num_steps=30, learning_rate=0.05)


HEAVY_INNER = Unrolled(num_steps=20, learning_rate=0.3, num_samples=1, restart_every=1)


# Draws and rows of the outer problem and the coreset's learning rate in that case.
HEAVY_DRAWS, HEAVY_ROWS, HEAVY_RATE = 2, 256, 0.01


# How fast r's scales move then, compared with its means, and how wide it starts.
HEAVY_PACE, HEAVY_WIDTH = 0.1, 0.03


def choose_batch(
    wanted: int | None, data: Dataset, objective: Objective, optimizer: Optimizer, heavy: bool
) -> int:
    """Rows a step: all of them while a fit stays cheap, for minibatch noise is what limits a coreset."""
    if wanted is not None or heavy:
        return min(wanted or HEAVY_ROWS, len(data))
    work = len(data) * (objective.num_samples or 1) * optimizer.default_steps
    return len(data) if work <= WHOLE_DATA_WORK else min(MINIBATCH_ROWS, len(data))
