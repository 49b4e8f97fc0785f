"""Environments: ready-made tabular models, and joint models as Gymnasium environments."""
