"""A coreset posterior as a Stan program and its data."""

import dataclasses
import os
import string
from pathlib import Path
from typing import NamedTuple

from .._json import one_line
from ..data.files import check_file
from ..fitting.result import Fit
from ..models.likelihoods import Bernoulli, Categorical, Gaussian, Poisson
from .rows import fit_rows, regression_of, write_text


class Response(NamedTuple):
    """How Stan declares the labels, and weighs label n given `eta[n]`, its linear predictor."""

    labels: str
    log_density: str
    settings: tuple[str, ...] = ()  # positive numbers that the likelihood has under these names
    first_label: int = 0


# One line per likelihood. Stan counts classes from 1.
RESPONSES: dict[type, Response] = {
    Bernoulli: Response("array[N] int<lower=0, upper=1> y", "bernoulli_logit_lpmf(y[n] | eta[n])"),
    Categorical: Response(
        "array[N] int<lower=1, upper=C> y", "categorical_logit_lpmf(y[n] | eta[n]')", first_label=1
    ),
    Gaussian: Response("vector[N] y", "normal_lpdf(y[n] | eta[n], noise)", settings=("noise",)),
    Poisson: Response("array[N] int<lower=0> y", "poisson_log_lpmf(y[n] | eta[n])"),
}

PROGRAM = string.Template("""\
// A coreset posterior: weighted rows that stand for all of the data.
data {
  $data;
}
parameters {
  $parameters;
}
model {
  $eta;
  $priors;
  for (n in 1:N) {
    target += w[n] * $log_density;
  }
}
""")


@dataclasses.dataclass(frozen=True)
class StanProgram:
    """A Stan program as text, and its data as a dictionary that JSON can hold.

    >>> import coresetvi as cvi
    >>> data = cvi.Dataset([[-1.0], [1.0], [2.0]], [0, 1, 1])
    >>> fit = cvi.fit(cvi.SubsetLaplace(2), cvi.models.LogisticRegression(1), data, key=0)
    >>> program = stan(fit)
    >>> program.data["N"], program.data["w"]
    (2, [1.5, 1.5])
    >>> [path.name for path in program.write("stan")]
    ['model.stan', 'data.json']
    """

    program: str
    data: dict[str, object]

    def write(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> tuple[Path, Path]:
        """Write model.stan and data.json into the folder `path`; the files' paths are returned.

        A `path` that ends in .stan is the program itself; the data go beside it, with the ending .json.
        """
        program, data = program_files(path)
        for file in (program, data):
            check_file(file, overwrite=overwrite)
        write_text(data, one_line(self.data) + "\n", overwrite=overwrite)
        write_text(program, self.program, overwrite=overwrite)
        return program, data


def program_files(path: str | os.PathLike[str]) -> tuple[Path, Path]:
    """The files of program and data that `StanProgram.write(path)` writes.

    >>> [file.as_posix() for file in (*program_files("stan"), *program_files("people.stan"))]
    ['stan/model.stan', 'stan/data.json', 'people.stan', 'people.json']
    """
    path = Path(path)
    if path.suffix == ".stan":
        return path, path.with_suffix(".json")
    return path / "model.stan", path / "data.json"


def stan(fit: Fit) -> StanProgram:
    """A Stan program of a regression, and data for it, whose posterior is that of the coreset.

    Its parameters are those of `model.params`, "coef" and "intercept"; classes count from 1, as Stan does.

        program, data = export.stan(fit).write("stan")
        draws = cmdstanpy.CmdStanModel(stan_file=program).sample(data=data)

    >>> import coresetvi as cvi
    >>> data = cvi.Dataset([[-1.0], [1.0], [2.0]], [0, 1, 1])
    >>> fit = cvi.fit(cvi.SubsetLaplace(2), cvi.models.LogisticRegression(1), data, key=0)
    >>> program = stan(fit).program
    >>> print(program[program.index("model {") :])
    model {
      vector[N] eta = x * coef;
      coef ~ normal(0, prior_scale);
      for (n in 1:N) {
        target += w[n] * bernoulli_logit_lpmf(y[n] | eta[n]);
      }
    }
    <BLANKLINE>
    """
    model = regression_of(fit, "Stan", RESPONSES)
    rows, likelihood = fit_rows(fit), model.likelihood
    response, several = RESPONSES[type(likelihood)], likelihood.output_size > 1
    x, y, weights = rows.to_numpy()
    assert y is not None
    data = {"N": len(rows), "D": model.num_features, "prior_scale": float(model.prior_scale)}
    data |= {"C": likelihood.output_size} if several else {}
    data |= {name: float(getattr(likelihood, name)) for name in response.settings}
    data |= {"x": x.tolist(), "y": (y + response.first_label).tolist(), "w": weights.tolist()}
    return StanProgram(_write_program(response, several, model.intercept), data)


def _write_program(response: Response, several: bool, intercept: bool) -> str:
    """The text of a program; with several outputs per row, `coef` and `eta` have one column each."""
    data = ["int<lower=1> N", "int<lower=1> D", *(["int<lower=2> C"] if several else []), "matrix[N, D] x"]
    data += [response.labels, "vector<lower=0>[N] w", "real<lower=0> prior_scale"]
    data += [f"real<lower=0> {name}" for name in response.settings]
    parameters = ["matrix[D, C] coef" if several else "vector[D] coef"]
    priors = [f"{'to_vector(coef)' if several else 'coef'} ~ normal(0, prior_scale)"]
    eta = f"{'matrix[N, C]' if several else 'vector[N]'} eta = x * coef"
    if intercept:
        parameters.append("row_vector[C] intercept" if several else "real intercept")
        priors.append("intercept ~ normal(0, prior_scale)")
        eta += f" + {'rep_matrix(intercept, N)' if several else 'intercept'}"
    lines = {"data": data, "parameters": parameters, "priors": priors}
    joined = {name: ";\n  ".join(parts) for name, parts in lines.items()}
    return PROGRAM.substitute(joined, eta=eta, log_density=response.log_density)
