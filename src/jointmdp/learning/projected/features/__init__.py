"""Linear features of states and actions: what an estimator projects onto."""

from jointmdp.learning.projected.features.constructors import aggregation, fourier, one_hot, polynomial, radial, tiles
from jointmdp.learning.projected.features.feature_forms import (
    DependentColumn,
    FeatureRows,
    Features,
    FeatureTable,
    as_feature_rows,
    as_feature_table,
    check_rank,
    dependent_columns,
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
