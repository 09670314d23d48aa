"""Convolution, pooling and ReLU of an image network as patches and one matrix product.

XLA's convolution on a CPU is slow for small kernels, and slower still for a batch of kernels, which is what
many draws of theta are. Here one patch covers a whole 2 x 2 pooling window: a kernel of k x k pixels and its
three neighbours see (k + 1) x (k + 1) pixels, so one product gives the four numbers of which pooling keeps
the largest. For k = 5 that is 36 numbers for four outputs instead of 25 for each.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..errors import InputError


def pooled_size(size: int, kernel: int, padding: int) -> int:
    """Pixels along one side after a convolution and 2 x 2 pooling; an odd last pixel is left out.

    >>> pooled_size(28, 5, 2), pooled_size(14, 5, 0)
    (14, 5)
    """
    return (size + 2 * padding - kernel + 1) // 2


def pooled_convolution(
    x: Float[Array, "n h w c"],
    kernel: Float[Array, "k k c o"],
    bias: Float[Array, " o"],
    padding: int,
) -> Float[Array, "n p q o"]:
    """ReLU(max over 2 x 2 windows of (x * kernel) + bias): bias and ReLU commute with the maximum.

    >>> image, kernel = jnp.ones((1, 6, 6, 1)), jnp.ones((5, 5, 1, 2))
    >>> pooled_convolution(image, kernel, jnp.zeros(2), 0)[0, 0, 0].tolist()
    [25.0, 25.0]
    """
    patches = window_patches(x, kernel.shape[0], padding)
    outputs = patches @ window_kernel(kernel)
    largest = jnp.max(outputs.reshape(*outputs.shape[:-1], 4, kernel.shape[-1]), axis=-2)
    return jax.nn.relu(largest + bias)


def window_patches(x: Float[Array, "n h w c"], size: int, padding: int) -> Float[Array, "n p q d"]:
    """The (size + 1)^2 pixels under every pooling window.

    Pixels are first gathered in 2 x 2 blocks, of which a window is a square: then a patch is a few slices.
    """
    if size % 2 == 0:
        raise InputError(f"A kernel of {size} x {size} pixels has no centre; use an odd size.")
    n, height, width, channels = x.shape
    rows, columns = (pooled_size(side, size, padding) for side in (height, width))
    reach = (size + 1) // 2  # blocks along one side of a window
    high, wide = rows + reach - 1, columns + reach - 1
    x = jnp.pad(x, ((0, 0), (padding, padding), (padding, padding), (0, 0)))[:, : 2 * high, : 2 * wide]
    blocks = x.reshape(n, high, 2, wide, 2, channels).transpose(0, 1, 3, 2, 4, 5)
    blocks = blocks.reshape(n, high, wide, 4 * channels)
    shifts = [(down, right) for down in range(reach) for right in range(reach)]
    return jnp.concatenate(
        [blocks[:, down : down + rows, right : right + columns] for down, right in shifts], axis=-1
    )


def window_kernel(kernel: Float[Array, "k k c o"]) -> Float[Array, "d e"]:
    """The kernel at the four places of a pooling window, as columns for `window_patches`."""
    size, _, channels, outputs = kernel.shape
    places = [(down, right) for down in (0, 1) for right in (0, 1)]
    pads = [((down, 1 - down), (right, 1 - right), (0, 0), (0, 0)) for down, right in places]
    shifted = jnp.stack([jnp.pad(kernel, pad) for pad in pads], axis=-2)
    reach = (size + 1) // 2
    blocks = shifted.reshape(reach, 2, reach, 2, channels, 4, outputs).transpose(0, 2, 1, 3, 4, 5, 6)
    return blocks.reshape((size + 1) ** 2 * channels, 4 * outputs)
