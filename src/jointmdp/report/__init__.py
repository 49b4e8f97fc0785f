"""For people: pictures and tables. Needs matplotlib for pictures (the extra ``plots``)."""
