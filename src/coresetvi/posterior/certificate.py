"""`Certificate`: the numbers that say how far a coreset posterior can be trusted, and the verdict on them.

The verdict follows from these thresholds and nothing else:

- Pareto k-hat of the full posterior against the coreset posterior above its threshold (0.7 for 2,154 draws or
  more, a little less for fewer) and less than 95 % of the draws effective, or a k-hat by gradients above 0.7:
  "enlarge". The coreset posterior does not reach where the full one is, and no weighting of its draws helps.
- Otherwise, KL(coreset posterior || full posterior), by weights or by gradients, above TRUST_KL nats, or with
  two of its standard errors above twice that: "correct". Weighting the draws by the full data
  (`coresetvi.correct`) gives the full posterior.
- KL(r || coreset posterior) above TRUST_KL nats, when r was not replaced by draws: "correct" too. r alone is
  not the coreset posterior: predictions must be importance-corrected (`Fit.predict` does), or made from
  draws.
- Otherwise "trust".

Before any of these: a place where the full posterior is about as high as anywhere, and the coreset posterior
far lower than that, is "enlarge". Chains that do not agree (R-hat above MIXED) on their log-density and on
the log-ratios of the two posteriors say nothing: "unclear". So do draws that were given, if a part of the
coreset posterior lies where none of them are and its weight is not known.
"""

import dataclasses
import math

import numpy as np

from .._json import plain
from ..families.importance import usable

Numbers = dict[str, int | float]

# Nats. By Pinsker's inequality no probability is off by more than sqrt(TRUST_KL / 2) = 0.22, and the mean of
# no parameter by more than about sqrt(2 TRUST_KL) = 0.45 standard deviations, if all of it lay in one.
TRUST_KL = 0.1
MIXED = 1.05
WIDEST_KHAT = 0.7


@dataclasses.dataclass(frozen=True)
class Certificate:
    """Numbers by group, and the verdict: trust | correct | enlarge | unclear.

    `r`: r against the coreset posterior. `posterior`: the coreset posterior against the full one. `elbo`: the
    bound of Eq. 9 in nats. `coreset`: its size, effective size exp(entropy of the weights) and total weight.
    `fit`: result and inner gradient norm. `look`: from how many particles far away it was looked for other
    modes (0: that was too much work), the part of them that ended `elsewhere` than the draws, and at how many
    places the full posterior has mass that is `unseen` by the coreset's. `chains`, `train`, `held_out` and
    `reference` are empty if there is nothing to say. `str(certificate)` is a table; `to_dict()` is plain data
    for machines.
    """

    verdict: str
    sentence: str
    r: Numbers
    posterior: Numbers
    elbo: Numbers
    coreset: Numbers
    fit: dict[str, object]
    chains: Numbers
    train: Numbers
    held_out: Numbers
    reference: Numbers
    look: Numbers = dataclasses.field(default_factory=dict)

    def to_dict(self) -> dict[str, object]:
        """Everything as plain numbers, words and dictionaries; what is not finite, as in JSON, is None."""
        return {name: plain(value) for name, value in dataclasses.asdict(self).items()}

    def lines(self) -> list[list[str]]:
        """(group, name, value) as text, in reading order."""
        titles = {
            "r": "r against the coreset posterior",
            "posterior": "coreset posterior against the full one",
            "elbo": "bound on the log-evidence (nats)",
            "coreset": "coreset",
            "fit": "fit",
            "chains": "chains",
            "look": "a look from far away",
            "train": "rows of the data",
            "held_out": "held-out rows",
            "reference": "against the reference",
        }
        found = []
        for group, title in titles.items():
            values = getattr(self, group)
            for index, (name, value) in enumerate(values.items()):
                found.append([title if index == 0 else "", name.replace("_", " "), shown(value)])
        return found

    def __str__(self) -> str:
        lines = self.lines()
        widths = [max(len(line[column]) for line in lines) for column in (0, 1)]
        table = [f"{group:{widths[0]}}  {name:{widths[1]}}  {value}" for group, name, value in lines]
        return "\n".join([self.sentence, "", *table])

    __repr__ = __str__


def shown(value: object) -> str:
    """A number as text, rounded to a few digits."""
    if isinstance(value, float):
        return f"{value:,.2f}" if abs(value) >= 1000 else f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)


def largest_kl(posterior: Numbers) -> float:
    """The larger of the two estimates of KL(coreset posterior || full posterior)."""
    return max(posterior["kl"], posterior.get("gradient_kl", 0.0))


def disagreement(chains: Numbers) -> float:
    """The R-hat that a divergence rests on: of the log-density of the draws, and of the log-ratios.

    Those of parameters count only where nothing else is known. Chains of a network never agree on them, since
    hidden units can change places, and a divergence does not depend on which of such modes a chain is in.
    """
    needed = [chains[name] for name in ("r_hat_density", "r_hat_ratio") if name in chains]
    return float(np.max(needed or [chains["r_hat"]]))


def judge(
    r: Numbers, posterior: Numbers, chains: Numbers, given: bool, look: Numbers | None = None
) -> tuple[str, str]:
    """The verdict and its sentence; `given` says that draws were given, so that r does not matter."""
    look = look or {}
    reach = max(posterior["khat"], posterior.get("gradient_khat", -math.inf))
    kl = largest_kl(posterior)
    words = f"KL to the full posterior {kl:.3g} nats, k-hat {reach:.2f}"
    if look.get("unseen", 0):
        return "enlarge", (
            f"Enlarge the coreset: the full posterior has mass in {look['unseen']:,} of the places looked at "
            f"where the coreset posterior has next to none (KL at least {kl:.3g} nats)."
        )
    if chains and not disagreement(chains) <= MIXED:
        return "unclear", (
            f"Unclear: the chains on the coreset have not mixed (R-hat {disagreement(chains):.2f}, above "
            f"{MIXED}), so nothing can be said; draw longer chains."
        )
    if look.get("unresolved", 0):
        return "unclear", (
            f"Unclear: {look['elsewhere']:.0%} of the coreset posterior seem to lie where none of the draws "
            "are; draw more chains, from other starts."
        )
    if not usable(posterior) or not posterior.get("gradient_khat", 0.0) <= WIDEST_KHAT:
        return "enlarge", (
            f"Enlarge the coreset: its posterior does not cover the full one (KL at least {kl:.3g} nats, "
            f"k-hat {reach:.2f}, above {posterior['khat_threshold']:.2f})."
        )
    if not (kl <= TRUST_KL and kl + 2.0 * posterior.get("kl_error", 0.0) <= 2.0 * TRUST_KL):
        return "correct", (
            f"Use importance correction: the coreset posterior covers the full one but is not it ({words}; "
            f"{TRUST_KL} nats would do). coresetvi.correct(draws, data) closes the gap, a larger coreset too."
        )
    if not given and not r["kl"] <= TRUST_KL:
        remedy = (
            "Fit.predict weights its draws, as it should, and so does sample(fit, method='importance')."
            if usable(r)
            else "its importance weights cannot be trusted either, so draw with coresetvi.sample(fit)."
        )
        return "correct", (
            f"Use importance correction: the coreset is good ({words}), but r is not its posterior "
            f"(KL {r['kl']:.3g} nats, k-hat {r['khat']:.2f}): {remedy}"
        )
    return "trust", f"Trust it: {words}."
