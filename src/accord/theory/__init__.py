"""What theory says of a problem: L, mu, G; default parameters; skip probability; certificate."""

from accord.theory.certificate import DENSE_LIMIT, Certificate, certificate
from accord.theory.conditioning import conditioning_hint
from accord.theory.constants import Constants, constants, has_bounds, scaled
from accord.theory.defaults import resolve
from accord.theory.heterogeneity import dissimilarity, skip_probability

__all__ = [
    "DENSE_LIMIT",
    "Certificate",
    "Constants",
    "certificate",
    "conditioning_hint",
    "constants",
    "dissimilarity",
    "has_bounds",
    "resolve",
    "scaled",
    "skip_probability",
]
