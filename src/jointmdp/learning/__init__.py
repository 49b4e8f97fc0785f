"""Joint moments learned from samples: number by number, as linear functions of features, or as networks."""
