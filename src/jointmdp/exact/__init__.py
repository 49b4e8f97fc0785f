"""Exact answers about tables: the equations, their solvers and certificates, laws, bounds, solutions, hindsight."""
