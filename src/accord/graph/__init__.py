"""Optimisation on any network: neighbours agree, without a server."""

from accord.graph.activation import GilbertElliott, Outage, PoissonClock, RandomSubset
from accord.graph.defaults import resolve
from accord.graph.job import METHODS, make_job
from accord.graph.machine import Machine
from accord.graph.mixing import DGD, EXTRA, Gossip, GradientTracking
from accord.graph.network import Network
from accord.graph.nodes import least_squares, quadratics
from accord.graph.pdmm import PDMM
from accord.graph.reference import NetworkReference
from accord.graph.run import COLUMNS, NetworkRun, run

__all__ = [
    "COLUMNS",
    "DGD",
    "EXTRA",
    "METHODS",
    "PDMM",
    "GilbertElliott",
    "Gossip",
    "GradientTracking",
    "Machine",
    "Network",
    "NetworkReference",
    "NetworkRun",
    "Outage",
    "PoissonClock",
    "RandomSubset",
    "least_squares",
    "make_job",
    "quadratics",
    "resolve",
    "run",
]
