"""The plots and where they live: `__init__.py` loads one from here when it is first used."""

from .diagrams import draw_chain as draw_chain
from .diagrams import draw_gridworld as draw_gridworld
from .hindsight_plots import hindsight_path as hindsight_path
from .hindsight_plots import hindsight_starts as hindsight_starts
from .method_plots import learning_curve as learning_curve
from .method_plots import predicted_against_simulated as predicted_against_simulated
from .method_plots import residuals as residuals
from .method_plots import returns as returns
from .method_plots import training_curves as training_curves
from .result_plots import bound_ladder as bound_ladder
from .result_plots import correlation_grid as correlation_grid
from .result_plots import correlation_matrix as correlation_matrix
from .result_plots import correlations as correlations
from .result_plots import gap_law as gap_law
from .result_plots import means as means
from .result_plots import variance_over_states as variance_over_states
from .result_plots import variance_over_time as variance_over_time
from .style import save as save
