"""The paper's tables and figures again: experiments as data, a runner that can stop and go on, a report."""

from .experiment import Experiment
from .experiment_files import experiment_names, read_experiment

__all__ = ["Experiment", "experiment_names", "read_experiment"]
