"""Every action of a state beside the policy's own, as plain rows for tables and JSON."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from jointmdp.bounds import cantelli
from jointmdp.intervals import Interval
from jointmdp.solution.gap import Gap
from jointmdp.solution.solution import Solution

SELECTION = 0.95  # probability with which the planned replications find the better action


def action_rows(solution: Solution, state: int, with_law: bool = False) -> dict[str, Any]:
    """Every available action of a state: its return, and its gap over the policy's most likely action."""
    model = solution.model
    actions = [int(a) for a in np.flatnonzero(model.available[state])]
    baseline = max(actions, key=lambda a: solution.policy[state, a])
    variances = np.diagonal(solution.covariance_of([state], actions)[0])
    rows = []
    for a, variance in zip(actions, variances, strict=True):
        rows.append(
            {
                "action": model.action_label(a),
                "index": a,
                "probability": float(solution.policy[state, a]),
                "mean": float(solution.mean[state, a]),
                "std": math.sqrt(max(0.0, float(variance))),
                "gap": None if a == baseline else gap_row(solution.gap(state, a, baseline), with_law),
            }
        )
    return {
        "state": model.state_label(state),
        "index": state,
        "baseline": model.action_label(baseline),
        "actions": rows,
    }


def gap_row(gap: Gap, with_law: bool = False) -> dict[str, Any]:
    """The numbers of one gap; those of its law take longer."""
    runs, inferiority = gap.replications_to_select(SELECTION), gap.moment_bounds().cdf(0.0)
    law = {}
    if with_law:
        law = {
            "superiority": gap.superiority(),
            "tie": gap.tie(),
            "quantile_05": gap.quantile(0.05),
            "cvar_05": gap.cvar(0.05),
        }
    return {
        "over": gap.other,
        "mean": gap.mean,
        "std": gap.std,
        "independent_std": math.sqrt(gap.independent_variance),
        "mean_error": gap.mean_error,
        "variance_error": gap.variance_error,
        "inferiority_bound": gap.inferiority_bound,
        "superiority": Interval(1 - inferiority.upper, 1 - inferiority.lower),
        # Cantelli's bound for whichever action has the higher mean: P(the other one does at least as well).
        "reversal_bound": cantelli(abs(gap.mean) - gap.mean_error, gap.variance + gap.variance_error),
        "replications_paired": runs.paired,
        "replications_unpaired": runs.unpaired,
        **law,
    }


def action_table(
    solution: Solution, states: Sequence[int], with_law: bool = False, remarks: Sequence[str] = (), **more: Any
) -> dict[str, Any]:
    """The actions of some states, with all that says how true the numbers are."""
    certificate, model = solution.certificate, solution.model
    over = f"the first {solution.horizon} steps" if solution.horizon is not None else "an endless future"
    sizes = ", ".join(
        f"{count} {word}{'' if count == 1 else 's'}"
        for count, word in zip(model.rewards.shape, ("state", "scenario", "action"), strict=True)
    )
    return {
        **more,
        "remarks": [f'{sizes}; discount {model.discount:g}, sharing "{model.sharing}", {over}', *remarks],
        "sharing": model.sharing,
        "discount": model.discount,
        "horizon": solution.horizon,
        "method": solution.method,
        "status": solution.status,
        "is_success": solution.status.is_success,
        "sentence": f"{solution.status.value} ({certificate})",
        "certificate": {
            "residual": certificate.residual,
            "mean_error": certificate.mean_error,
            "covariance_error": certificate.covariance_error,
            "second_moment_error": certificate.second_moment_error,
        },
        "selection_probability": SELECTION,
        "states": [action_rows(solution, state, with_law) for state in states],
    }
