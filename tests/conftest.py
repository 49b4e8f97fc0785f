"""Settings shared by all tests, made before anything imports JAX or the equations."""

import atexit
import gc
import os
from collections.abc import Iterator
from pathlib import Path

import beartype  # noqa: F401  before the hook, which compiles anew what is imported under it
import pytest
from jaxtyping import install_import_hook

# Compilation is most of the time of these tests; workers and later runs share what one of them has compiled.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parent.parent / ".pytest_cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

# Shapes in signatures are executed, in every module that states them: a wrong one raises at the call and is named.
SOURCE = Path(__file__).parent.parent / "src"
SHAPED = [
    ".".join(path.relative_to(SOURCE).with_suffix("").parts)
    for path in sorted(SOURCE.rglob("*.py"))
    if "from jaxtyping import" in path.read_text(encoding="utf-8")
]
install_import_hook(SHAPED, "beartype.beartype")

# A worker of the tests ends at once: finding and freeing thousands of compiled programs takes ten seconds.
if "PYTEST_XDIST_WORKER" in os.environ:
    atexit.register(os._exit, 0)  # the first to be registered is the last to be called


def pytest_sessionfinish() -> None:
    """What is left needs no search for cycles, which pytest makes five times."""
    gc.freeze()


MOST_MAPPINGS = 40_000  # of memory, of a process; Linux allows 65,530, and XLA takes several for each program


@pytest.fixture(autouse=True, scope="module")
def few_programs() -> Iterator[None]:
    """Compiled programs are forgotten when they are too many: beyond the limit of mappings XLA ends the process."""
    yield
    mappings = Path("/proc/self/maps")
    if mappings.exists() and mappings.read_bytes().count(b"\n") > MOST_MAPPINGS:
        import jax

        jax.clear_caches()
        gc.collect()


@pytest.fixture
def quick_compilation() -> Iterator[None]:
    """XLA optimises less: for tests that compile for long and compute for a moment."""
    import jax

    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


COMPILED = "/jax/core/compile/backend_compile_duration"


@pytest.fixture
def compilations() -> Iterator[list[str]]:
    """Grows by one entry whenever JAX compiles something, or reads it from the cache."""
    import jax

    events: list[str] = []

    def listen(event: str, duration: float, **_: object) -> None:
        if event == COMPILED:
            events.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield events
    jax.monitoring.unregister_event_duration_listener(listen)
