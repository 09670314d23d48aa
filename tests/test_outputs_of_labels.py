"""What a label says about the output behind it: where, and how precisely."""

import jax.numpy as jnp
import numpy as np
import pytest

from coresetvi.models.likelihoods import Gaussian


@pytest.mark.parametrize("noise", [0.5, 1.0, 3.0])
def test_a_value_says_its_output_with_the_precision_of_the_noise(noise):
    """log p(y | output) falls from outputs_of(y) by half the precision times the square of the distance."""
    likelihood, y = Gaussian(noise), jnp.asarray([-1.0, 0.5, 4.0])
    outputs, precision = likelihood.outputs_of(y)
    distance = jnp.asarray([[0.5], [2.0], [-3.0]])
    fall = likelihood.log_prob(outputs, y) - likelihood.log_prob(outputs + distance, y)
    np.testing.assert_allclose(fall, 0.5 * precision * distance[:, 0] ** 2, rtol=1e-5)
