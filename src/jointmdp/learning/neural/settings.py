"""The settings of networks and of their training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from numbers import Number
from typing import TYPE_CHECKING, Any, Literal

from jointmdp.ground import checks
from jointmdp.ground.errors import ModelError
from jointmdp.ground.files import FilePath
from jointmdp.learning.runs import Method

if TYPE_CHECKING:
    from jointmdp.learning.neural.queries import RecordedQueries

MatrixForm = Literal["parts", "gram"]
BLOCKS = ("mean", "diag", "same", "cross", "gap")
ELSEWHERE = ("queries", "checkpoint", "checkpoint_seconds", "log")  # not compared with a checkpoint, or not as they are


@dataclass(frozen=True, eq=False, kw_only=True)
class NeuralSettings(Method):
    """What the user of `jointmdp.Neural` chooses, checked."""

    queries: int | RecordedQueries = 100_000
    """Lists of three coordinates that are recorded, each drawn twice, rounded up to thousands; or recorded ones."""
    batch: int = 256
    """Lists in a step."""
    networks: int = 3
    """Trained side by side from different seeds; their spread is the error of every number."""
    hidden: tuple[int, ...] = (256, 256)
    """Units of the hidden layers. Frames pass three convolutions before them."""
    rank: int = 16
    """Length of v, which covariances of all pairs are made of."""
    own_rank: int = 8
    """Length of w, for actions of the same state."""
    action_rank: int | None = None
    """In how many ways actions may differ in a state, for games with many actions; None: each has its own weights."""
    form: MatrixForm = "parts"
    """``"parts"``, or ``"gram"`` for the paper's ``⟨v, v⟩`` alone."""
    learning_rate: float = 1e-3
    """At the beginning; it falls to 0 as a cosine."""
    weight_decay: float = 0.0
    """Of weights, not of biases."""
    target_rate: float = 0.02
    """How far the target network moves towards the trained one in a step."""
    averaging: float = 0.999
    """What an average of the weights keeps in a step; answers come from the average."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Factors of the losses of `BLOCKS`; 1 by default."""
    restart: float | None = None
    """The chance that a pair of branches restarts in a step; 1 − γ by default."""
    episode_restart: float | None = None
    """The chance that an episode restarts in a step; 1 − γ by default."""
    checkpoint_seconds: float = 30.0
    log: FilePath | None = None
    """A folder for TensorBoard."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("batch", "networks", "rank", "action_rank"):
            self._keep(name, checks.as_count)
        if isinstance(self.queries, Number):
            self._keep("queries", checks.as_count)
        self._keep("own_rank", checks.as_count, 0)
        self._keep("learning_rate", checks.as_positive)
        self._keep("weight_decay", checks.as_amount)
        for name in ("target_rate", "averaging", "restart", "episode_restart"):
            self._keep(name, checks.as_probability)
        if not isinstance(self.hidden, tuple | list):
            raise ModelError(f"hidden is {self.hidden!r}; give the units of each layer, as in hidden=(256, 256)")
        object.__setattr__(self, "hidden", tuple(checks.as_count("hidden", units) for units in self.hidden))
        if self.target_rate == 0:
            raise ModelError("target_rate is 0: the target network would never learn")
        if self.averaging == 1:
            raise ModelError("averaging is 1: the average would never leave the start")
        if self.form not in ("parts", "gram"):
            raise ModelError(f'form is {self.form!r}; it must be "parts" or "gram"')
        if not isinstance(self.weights, Mapping):
            raise ModelError(f"weights is {self.weights!r:.80}; give factors by block, as in weights={{'gap': 2.0}}")
        unknown = set(self.weights) - set(BLOCKS)
        if unknown:
            raise ModelError(f"weights names {sorted(unknown)[0]!r}; the blocks are {', '.join(BLOCKS)}")
        factors = {name: checks.as_amount(f"the weight of {name}", self.weights.get(name, 1.0)) for name in BLOCKS}
        if not any(factors.values()):
            raise ModelError("all weights are 0: there is nothing to learn")
        object.__setattr__(self, "weights", factors)

    def described(self) -> dict[str, Any]:
        """What must be the same for a run to be continued."""
        found = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in ELSEWHERE}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}
