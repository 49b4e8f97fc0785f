"""The settings of a training run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from jointmdp.ground import checks
from jointmdp.ground.errors import ModelError
from jointmdp.ground.files import FilePath

MatrixForm = Literal["parts", "gram"]
BLOCKS = ("mean", "diag", "same", "cross", "gap")
PLACES = ("checkpoint", "checkpoint_seconds", "log")  # do not change what is learned


@dataclass(frozen=True)
class TrainConfig:
    """Settings of `train`; each has a default that serves."""

    queries: int = 100_000
    """Lists of three coordinates that are recorded, each drawn twice; rounded up to thousands."""
    steps: int = 20_000
    """Steps of the optimiser."""
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
    """The chance that a pair of branches begins anew in a step; 1 − γ by default."""
    episode_restart: float | None = None
    """The chance that an episode begins anew in a step; 1 − γ by default."""
    seed: int = 0
    checkpoint: FilePath | None = None
    """A folder where queries and weights are saved now and then, and continued from."""
    checkpoint_seconds: float = 30.0
    log: FilePath | None = None
    """A folder for TensorBoard."""

    def __post_init__(self) -> None:
        for name in ("queries", "steps", "batch", "networks", "rank"):
            self._keep(name, checks.as_count(name, getattr(self, name)))
        for name in ("own_rank", "seed"):
            self._keep(name, checks.as_count(name, getattr(self, name), 0))
        if self.action_rank is not None:
            self._keep("action_rank", checks.as_count("action_rank", self.action_rank))
        if not isinstance(self.hidden, tuple | list):
            raise ModelError(f"hidden is {self.hidden!r}; give the units of each layer, as in hidden=(256, 256)")
        self._keep("hidden", tuple(checks.as_count("hidden", units) for units in self.hidden))
        self._keep("learning_rate", checks.as_positive("learning_rate", self.learning_rate))
        for name in ("weight_decay", "checkpoint_seconds"):
            self._keep(name, checks.as_amount(name, getattr(self, name)))
        for name in ("target_rate", "averaging", "restart", "episode_restart"):
            if getattr(self, name) is not None:
                self._keep(name, checks.as_probability(name, getattr(self, name)))
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
        self._keep("weights", factors)

    def _keep(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def described(self) -> dict[str, Any]:
        """What must be the same for a run to be continued."""
        found = asdict(self)
        return {name: list(v) if isinstance(v, tuple) else v for name, v in found.items() if name not in PLACES}
