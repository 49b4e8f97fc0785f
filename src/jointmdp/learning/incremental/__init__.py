"""Learning joint moments from samples: incremental JIPE-2 and JIPE-n, for tables and for any simulator."""
