"""Every choice that hangs on the size of the model, on the number of rows, or on what one row costs.

What a user leaves open is chosen here and nowhere else, from what can be measured: parameters, rows, and the
numbers that the model's forward pass makes per row. Nothing here knows what kind of model it is.
"""

from typing import NamedTuple

import equinox as eqx
import jax

from ..data.dataset import Dataset
from ..data.rows import Rows
from ..errors import InputError
from ..families.base import EXACT_CURVATURE_DIM, Family
from ..families.gaussian import FullRank, MeanField
from ..families.sampled import Sampled
from ..inner.base import Inner
from ..inner.chains import Chains
from ..inner.implicit import Alternating, Implicit, Joint
from ..inner.unrolled import Unrolled
from ..models.base import Model
from ..models.sums import HEAVY, is_heavy, numbers_per_row
from ..objectives import Objective
from ..outer.adam import Adam
from ..outer.base import Optimizer
from ..outer.matching import Matching
from ..outer.natural import NaturalGradient
from ..outer.rise_matching import RiseMatching
from ..outer.slope_matching import SlopeMatching

# Size of a coreset that was not asked for: this many points per parameter, within these limits.
POINTS_PER_PARAMETER, FEWEST_POINTS, MOST_POINTS = 2, 20, 500

# Up to this many parameters a full covariance and importance sampling are both affordable and reliable.
SMALL_MODEL = 128
# Log-likelihoods (rows x draws x steps) that a fit may evaluate before it turns to minibatches: about 20 s.
WHOLE_DATA_WORK = 2_500_000_000
MINIBATCH_ROWS = 8_192
# How r is found on the coreset: as a rule, and where a row is a lot of work. Then steps are few and long, one
# draw each, from a fresh start: the points are to suit any network.
LIGHT_INNER = Unrolled(num_steps=30, learning_rate=0.05)
HEAVY_INNER = Unrolled(num_steps=20, learning_rate=0.3, num_samples=1, restart_every=1)
# Draws and rows of the outer problem and the coreset's learning rate in that case.
HEAVY_DRAWS, HEAVY_ROWS, HEAVY_RATE = 2, 256, 0.01
# How fast r's scales move then, compared with its means, and how wide it starts.
HEAVY_PACE, HEAVY_WIDTH = 0.1, 0.03
# Draws per step for nested gradients, which need few, and the fewest for regressions on residuals.
NESTED_DRAWS, FEWEST_NATURAL_DRAWS = 10, 128

# Draws per pass of a fit by passes: so many that rows x draws stay below the first, within these limits.
MATCHING_NUMBERS, FEWEST_MATCHING_DRAWS, MOST_MATCHING_DRAWS = 2**25, 32, 256

# Numbers that draws of the coreset posterior may take during a fit: about five minutes.
MOST_WORK = 3 * 10**12
# Beyond so many parameters the draws of a pass leave most directions unseen, and matching them means little.
MOST_MATCHED_DIM = 512

# Leaves that may be learned from the rises at so many draws alone; more of them need slopes as well.
LEAVES_PER_DRAW = 0.5

# Coresets that grow: numbers (rows x draws) that the search for the next point may look at (all rows of most
# data sets), and steps on the weights after each addition: natural gradients need few, Adam the paper's.
CANDIDATE_NUMBERS = 2**24
NATURAL_WEIGHT_STEPS, ADAM_WEIGHT_STEPS = 10, 200

# Hilbert coresets: numbers (rows x draws) in the table of vectors, 256 MB.
VECTOR_NUMBERS = 2**26

# Plain inference: stochastic gradients of a full covariance are reliable up to about this many parameters,
FULL_RANK_DIM = 32
# and up to this many a Newton solution is looked for before the first step.
NEWTON_DIM = 64
# Steps in posterior standard deviations: as a rule, and for large networks, whose means have far to go.
PLAIN_RATE, LARGE_PLAIN_RATE = 0.05, 0.3
PLAIN_ROWS = 4 * MINIBATCH_ROWS
FEWEST_PLAIN_DRAWS = 32


def default_size(model: Model, available: int) -> int:
    """Enough points to pin down every parameter, while that is few, and never more than there are rows.

    >>> from coresetvi.models import LogisticRegression
    >>> default_size(LogisticRegression(40), 1000), default_size(LogisticRegression(40), 50)
    (80, 50)
    """
    return min(max(POINTS_PER_PARAMETER * model.dim, FEWEST_POINTS), MOST_POINTS, available)


class Engine(NamedTuple):
    """The parts of a gradient-based fit, all of them chosen; `num_samples` are the objective's draws."""

    family: Family
    objective: Objective
    num_samples: int
    inner: Inner
    optimizer: Optimizer
    batch_size: int


def choose_engine(
    model: Model,
    data: Rows,
    objective: Objective,
    size: int,
    row_cost: int,
    *,
    leaves: int,
    family: Family | None,
    inner: Inner | None,
    optimizer: Optimizer | None,
    batch_size: int | None,
    by_passes: bool = True,
) -> Engine:
    """What was given, and for what was not, the parts that suit the problem's sizes and each other.

    `leaves` are the numbers that are learned if draws of the coreset posterior are at hand. Steps may be
    passes over all rows only if `by_passes`.
    """
    # A point mass has no draws to weigh: the coreset reaches it through the inner problem alone.
    point = family is not None and not family.has_density
    direct = objective.sees_core and not point
    heavy = row_cost >= HEAVY
    in_memory = isinstance(data, Dataset)
    stepwise = batch_size is not None or not by_passes
    nothing_asked = family is None and inner is None and optimizer is None
    if nothing_asked and direct and not stepwise and SMALL_MODEL < model.dim <= MOST_MATCHED_DIM:
        # No normal that is affordable covers so many parameters.
        inner = Chains() if is_affordable(Chains(), row_cost + model.dim, size) else None
    if optimizer is None and inner is not None and inner.keeps_draws and not stepwise:
        optimizer = match_draws(inner, data, leaves)
    if optimizer is None:
        small = direct and inner is None and model.dim <= SMALL_MODEL
        stands_still = inner is not None and not inner.passes_gradient
        by_steps = Adam(HEAVY_RATE) if heavy else Adam()
        regressions = NaturalGradient() if stands_still or stepwise else Matching()
        optimizer = regressions if small or stands_still else by_steps
    if not in_memory and not optimizer.by_passes:
        raise InputError(
            f"{type(optimizer).__name__} looks at rows hundreds of times, and these are not in memory; use "
            "optimizer=Matching() if the model is small, or fit a Dataset, such as a sample of the rows."
        )
    regresses = optimizer.needs_exact_data
    if optimizer.needs_draws:
        inner = Chains() if inner is None else inner
        if not inner.keeps_draws:
            name = type(optimizer).__name__
            raise InputError(f"{name} needs draws of the coreset posterior; use inner=Chains() or SMC().")
    if inner is None:
        inner = Alternating(Implicit()) if regresses else HEAVY_INNER if heavy else LIGHT_INNER
    flows = inner.passes_gradient and optimizer.uses_inner_gradient
    if not direct and not flows:
        raise InputError(
            f"{type(family if point else objective).__name__} reaches the coreset only through the inner "
            "problem; use it with inner=Unrolled(), Truncated() or Implicit() and optimizer=Adam()."
        )
    if isinstance(inner, Joint) and not optimizer.uses_inner_gradient:
        raise InputError("Joint() needs optimizer=Adam(), which moves r together with the coreset.")
    if family is None:
        # A full covariance learned from few noisy draws, as Adam's are, is worse than a diagonal one.
        diagonal = MeanField(HEAVY_PACE, HEAVY_WIDTH) if heavy else MeanField()
        family = FullRank() if model.dim <= SMALL_MODEL and regresses else diagonal
    if inner.keeps_draws:
        family = family_of_draws(family)
        objective = with_draws(objective, inner.num_kept)
    num_samples = objective.num_samples
    if num_samples is None:
        many = max(FEWEST_NATURAL_DRAWS, 4 * model.dim)
        if optimizer.needs_view:
            many = matching_draws(data)
        num_samples = many if regresses else HEAVY_DRAWS if heavy else NESTED_DRAWS
        objective = with_draws(objective, num_samples)
    looks = 0 if optimizer.by_passes else num_samples * optimizer.default_steps
    rows = choose_batch(batch_size, data, looks, heavy)
    return Engine(family, objective, num_samples, inner, optimizer, rows)


def match_draws(inner: Inner, data: Rows, leaves: int) -> Optimizer:
    """Small steps where draws follow the coreset, tell of all leaves, and may look at the rows that often."""
    steps = RiseMatching()
    draws = steps.memory * inner.num_kept
    looks = inner.num_kept * steps.default_steps
    cheap = isinstance(data, Dataset) and len(data) * looks <= WHOLE_DATA_WORK
    return steps if cheap and not inner.draws_anew and leaves <= LEAVES_PER_DRAW * draws else SlopeMatching()


def with_draws(objective: Objective, num_samples: int) -> Objective:
    """The objective with its number of draws settled."""
    return eqx.tree_at(lambda o: o.num_samples, objective, num_samples, is_leaf=lambda leaf: leaf is None)


def family_of_draws(shape: Family) -> Sampled:
    """The family of a fit whose posterior is draws, with a normal of this shape around them."""
    if isinstance(shape, Sampled):
        return shape
    if not isinstance(shape, FullRank | MeanField):
        raise InputError(f"Chains need family=FullRank() or MeanField(), not {type(shape).__name__}().")
    return Sampled(shape)


def one_row(data: Rows) -> Dataset:
    """Rows whose shape and types are those of the data."""
    return data if isinstance(data, Dataset) else data.sample(jax.random.key(0), 1)


def choose_batch(wanted: int | None, data: Rows, looks: int, heavy: bool) -> int:
    """Rows per step: all of them while a fit stays cheap, for minibatch noise is what limits a coreset.

    `looks` is how often a fit would look at each row: draws times steps.
    """
    if wanted is not None or heavy:
        return min(wanted or HEAVY_ROWS, len(data))
    return len(data) if len(data) * looks <= WHOLE_DATA_WORK else min(MINIBATCH_ROWS, len(data))


def matching_draws(data: Rows) -> int:
    """Draws per pass, for what slopes and curvatures cannot say: many while that costs nothing.

    >>> matching_draws(Dataset([[1.0]] * 1000))
    256
    """
    draws = MATCHING_NUMBERS // data.num_rows
    return max(FEWEST_MATCHING_DRAWS, min(MOST_MATCHING_DRAWS, 2 * (draws // 2)))


def row_cost(model: Model, data: Rows) -> int:
    """Numbers that a model makes for one row: what it costs to look at."""
    return numbers_per_row(model, one_row(data))


def is_affordable(inner: Inner, numbers: int, size: int) -> bool:
    """Whether draws given so many points, of so many numbers each, take minutes at most."""
    return numbers * size * inner.evaluations <= MOST_WORK


def keeps_expansion(model: Model, data: Rows, optimizer: Optimizer, batch_size: int) -> bool:
    """Whether a quadratic expansion of all rows takes the noise out of minibatches."""
    return batch_size < len(data) and optimizer.needs_exact_data and model.dim <= SMALL_MODEL


def weight_steps_for(optimizer: Optimizer) -> int:
    """Steps on the weights after each addition to a growing coreset."""
    return NATURAL_WEIGHT_STEPS if optimizer.needs_exact_data else ADAM_WEIGHT_STEPS


def candidates_for(num_samples: int, data: Dataset) -> int:
    """Rows to look at for each addition to a growing coreset."""
    return min(max(1, CANDIDATE_NUMBERS // num_samples), len(data))


def projections_for(wanted: int, data: Dataset) -> int:
    """Draws on which rows are compared as vectors, so that the table of them fits in memory."""
    return max(2, min(wanted, VECTOR_NUMBERS // len(data)))


def laplace_family(model: Model) -> Family:
    """The normal at a posterior's mode: with every covariance where that is affordable."""
    return FullRank() if model.dim <= SMALL_MODEL else MeanField()


def plain_family(model: Model) -> Family:
    """A full covariance where a few draws can still estimate it: a diagonal one is a ceiling."""
    if is_large(model):
        return MeanField(spread_pace=HEAVY_PACE)
    return FullRank() if model.dim <= FULL_RANK_DIM else MeanField()


def plain_rate(model: Model) -> float:
    """Learning rate of plain variational inference, in posterior standard deviations."""
    return LARGE_PLAIN_RATE if is_large(model) else PLAIN_RATE


def plain_draws(model: Model, data: Dataset) -> int:
    """Draws per step: for small models enough for `draw_noise` to give them exact second moments."""
    if is_heavy(model, data):
        return HEAVY_DRAWS
    return max(FEWEST_PLAIN_DRAWS, 4 * model.dim if model.dim <= FULL_RANK_DIM else 0)


def plain_rows(model: Model, points: Dataset) -> int:
    """Rows per step of plain variational inference."""
    return HEAVY_ROWS if is_heavy(model, points) else PLAIN_ROWS


def is_large(model: Model) -> bool:
    """Whether r starts where curvature is only estimated, and has many of its deviations to go."""
    return model.dim > EXACT_CURVATURE_DIM
