"""The joint MDP: tables, policies, couplings, and what builds a model from something else."""
