"""The libraries of networks, which the extra `neural` installs."""

try:
    import equinox as eqx
    import optax
except ImportError as error:
    raise ImportError(
        f"networks need {error.name or 'equinox and optax'}, which is not installed: pip install 'jointmdp[neural]'"
    ) from error

__all__ = ["eqx", "optax"]
