# SPDX-License-Identifier: Apache-2.0
"""How Sphinx makes the site; its sources are gathered by gather.py."""

import os

project = "tutti"
author = "The tutti authors"
copyright = "The tutti authors"  # noqa: A001
version = release = os.environ["TUTTI_VERSION"]

extensions = ["breathe", "myst_parser", "sphinx_copybutton"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_doctrees"]
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]
# "console" is a session: prompts are no part of what is copied.
copybutton_prompt_text = r"\$ "
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = True

breathe_projects = {"tutti": os.environ["TUTTI_XML"]}
breathe_default_project = "tutti"
breathe_default_members = ("members", "undoc-members")
breathe_show_include = False
cpp_maximum_signature_line_length = 90
primary_domain = "cpp"
highlight_language = "cpp"

html_theme = "furo"
html_title = f"tutti {release}"
html_static_path = ["static"]
html_css_files = ["style.css"]
html_theme_options = {"source_view_link": "", "navigation_with_keys": True}
html_show_sphinx = False
html_copy_source = False
pygments_style = "friendly"
pygments_dark_style = "monokai"

# A namespace that two headers declare is on the pages of both.
suppress_warnings = ["duplicate_declaration.cpp"]
