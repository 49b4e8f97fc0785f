"""Sphinx builds the site from the pages of this folder: ``make docs``."""

from importlib.metadata import version as installed

project = "jointmdp"
author = "The jointmdp authors"
copyright = "the jointmdp authors"
version = release = installed("jointmdp")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["atari/curves_*.md", "atari/ratios.md", "atari/roots.md"]  # parts of atari/README.md
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = "jointmdp"
html_theme_options = {"sidebar_hide_name": False, "navigation_with_keys": True}
html_show_copyright = False

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # shapes and types stand in the source; signatures stay short enough to read
autodoc_default_options = {"members": True, "undoc-members": False, "show-inheritance": False}
autoclass_content = "class"
add_module_names = False
napoleon_google_docstring = True
napoleon_numpy_docstring = False
python_display_short_literal_types = True
