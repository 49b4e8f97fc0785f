"""For people: one page for a browser, tables for a terminal."""
