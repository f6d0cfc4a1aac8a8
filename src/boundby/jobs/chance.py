"""What differs by more than chance: limits as unlikely as so many standard errors, whatever number of values they rest
on."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boundby.model.arrays import BoolArray, Int64Array

Float = npt.NDArray[np.float64]
#: A difference counts from so many standard errors of its mean on (of a normal distribution: from few values it takes
#: more).
LEAST_Z = 4.0


def least_t(freedom: Int64Array) -> Float:
    """The number of standard errors that counts, where these rest on few values: Student's distribution (Wallace's
    approximation: within 3 % from six degrees of freedom on; from two to five up to half as much again)."""
    free = np.maximum(freedom, 1).astype(np.float64)
    quantile: Float = np.sqrt(free * np.expm1(LEAST_Z**2 * (free - 5 / 6) / (free - 2 / 3 + 0.1 / free) ** 2))
    return quantile


def is_by_chance(between: Float, groups: Int64Array, within: Float, values: Int64Array) -> BoolArray:
    """Whether the means of so many groups differ no more than the values inside them explain. ``between``, ``within``:
    sums of squares; of the distribution of their ratio (Fisher's) Paulson's approximation."""
    over, free = np.maximum(groups - 1, 1).astype(np.float64), np.maximum(values - groups, 1).astype(np.float64)
    ratio = np.divide(between * free, within * over, out=np.where(between > 0, np.inf, 0.0), where=within > 0)
    root = np.cbrt(np.minimum(ratio, np.finfo(np.float64).max))
    errors = (root * (1 - 2 / (9 * free)) - (1 - 2 / (9 * over))) / np.sqrt(2 / (9 * over) + root**2 * 2 / (9 * free))
    alike: BoolArray = (groups < 2) | (values <= groups) | (errors <= LEAST_Z)
    return alike
