"""Moments as solutions hold them: second order, higher orders with their errors, and joint powers."""
