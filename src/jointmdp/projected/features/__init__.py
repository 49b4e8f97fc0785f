"""Linear features of states and actions: what an estimator projects onto."""

from jointmdp.projected.features.column_ranks import DependentColumn, check_rank, dependent_columns
from jointmdp.projected.features.constructors import aggregation, fourier, one_hot, polynomial, radial, tiles
from jointmdp.projected.features.feature_forms import (
    FeatureRows,
    Features,
    FeatureTable,
    as_feature_rows,
    as_feature_table,
)

__all__ = [
    "DependentColumn",
    "FeatureRows",
    "FeatureTable",
    "Features",
    "aggregation",
    "as_feature_rows",
    "as_feature_table",
    "check_rank",
    "dependent_columns",
    "fourier",
    "one_hot",
    "polynomial",
    "radial",
    "tiles",
]
